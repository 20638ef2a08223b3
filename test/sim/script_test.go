package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the expected output of scripts in testdata")

// TestScripts plays testdata/*.txt: histories that are worth keeping, each named
// by its case, scenario or fault. A file is blocks of commands, a line "----", and
// what came of them: commands that had no meaning, what was stored and cut, and
// the world at the end of the block. "go test ./test/sim -run Scripts -update"
// rewrites the output; read its diff like code.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			was, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			now := playScript(string(was))
			if *update {
				if err := os.WriteFile(file, []byte(now), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(strings.Split(string(was), "\n"), strings.Split(now, "\n")); d != "" {
				t.Errorf("%s (go test ./test/sim -run Scripts -update): %s", file, d)
			}
		})
	}
}

// TestScriptsAreDocumented: every command of a script is one that the model has.
func TestScriptsAreDocumented(t *testing.T) {
	for name, o := range outside {
		if _, ok := scripted[name]; ok || o.usage == "" {
			t.Errorf("command %s has no usage or is there twice", name)
		}
	}
}

// scripted are commands that only scripts have.
var scripted = map[string]func(w *world, arg string){
	healCommand: func(w *world, _ string) { w.heal() },
	// settle lets everything happen that can without time going by.
	"settle": func(w *world, _ string) { w.settle(false) },
	// time does the same, and retry timers fire, once.
	"time": func(w *world, _ string) { w.round(true); w.settle(false) },
	// until lets things happen, oldest first, up to just before the named one.
	"until": func(w *world, name string) {
		for range 2000 {
			switch {
			case len(w.actions) == 0:
				w.event("never came: %s", name)
				return
			case w.actions[0].name == name:
				return
			}
			w.exec("run " + w.actions[0].name)
		}
	},
}

// settle ends when a round changes nothing.
func (w *world) settle(timers bool) {
	for range 60 {
		before := w.show()
		w.round(timers)
		if len(w.actions) == 0 && w.show() == before {
			return
		}
	}
	w.event("doesn't settle")
}

func playScript(text string) string {
	var out strings.Builder
	w := newWorld()
	w.telling = true
	w.drain(100)
	inOutput := false
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		switch {
		case line == "----":
			inOutput = true
			out.WriteString("----\n" + strings.Join(w.events, ""))
			w.events = nil
			if w.broken != "" {
				fmt.Fprintf(&out, "BROKEN %s\n", w.broken)
			}
			out.WriteString(w.show())
		case line == "":
			inOutput = false
			out.WriteString("\n")
		case inOutput:
		default:
			out.WriteString(line + "\n")
			playLine(w, line)
		}
	}
	return out.String()
}

func playLine(w *world, line string) {
	command, arg, _ := strings.Cut(line, " ")
	if strings.HasPrefix(line, "#") {
		return
	}
	if f, ok := scripted[command]; ok {
		f(w, arg)
		return
	}
	if !w.exec(line) {
		w.event("nothing: %s", line)
	}
}
