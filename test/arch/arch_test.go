package arch

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// listed is the part of `go list -json` that the rules need.
type listed struct {
	ImportPath   string
	Dir          string
	Doc          string
	Name         string
	Imports      []string
	TestImports  []string
	XTestImports []string
	GoFiles      []string
}

const module = "kagami/"

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,Doc,Name,Imports,TestImports,XTestImports,GoFiles", "kagami/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("only %d packages listed", len(all))
	}
	return all
}

// room is the first folder, with cmd/internal/tool taken as cmd.
func room(importPath string) string {
	r, _, _ := strings.Cut(strings.TrimPrefix(importPath, module), "/")
	return r
}

// ours says which of our own rooms a room may import (besides internal and itself).
var ours = map[string][]string{
	"internal":    {},
	"messages":    {},
	"fsm":         {"messages"},
	"persistence": {"messages"},
	"fetch":       {"messages"},
	"cluster":     {"messages", "persistence"},
	"broker":      {"messages", "persistence"},
	"actors":      {"messages", "fsm", "fetch", "persistence", "cluster"},
	"admin":       {"messages"},
	"client":      {"messages"},
	"cmd":         {"messages", "fsm", "persistence", "fetch", "cluster", "broker", "actors", "admin", "client"},
	"test":        {"messages", "fsm", "persistence", "fetch", "cluster", "broker", "actors", "admin", "client", "cmd"},
}

// third says in which rooms a third party may be named. A prefix of the import path.
var third = map[string][]string{
	"github.com/looplab/fsm":                  {"fsm"},
	"github.com/asynkron/protoactor-go/actor": {"actors"},
	"github.com/asynkron/protoactor-go/":      {"actors"},
	"github.com/nats-io/":                     {"cluster"},
	"github.com/twmb/franz-go/pkg/kgo":        {"fetch", "client", "cmd", "test"},
	"github.com/twmb/franz-go/pkg/kadm":       {"fetch", "client", "cmd", "test"},
	"github.com/twmb/franz-go/plugin/":        {"fetch", "cmd", "test"},
	"github.com/twmb/franz-go/pkg/kmsg":       {"messages", "fetch", "persistence", "broker", "client", "cmd", "test"},
	"github.com/twmb/franz-go/pkg/kerr":       {"messages", "fetch", "persistence", "broker", "client", "cmd", "test"},
	"github.com/twmb/franz-go/pkg/kbin":       {"messages", "fetch", "persistence", "broker", "test"},
	"github.com/twmb/franz-go/pkg/kfake":      {"test"},
	"github.com/prometheus/":                  {"admin", "cmd"},
	"github.com/spf13/pflag":                  {"cmd"},
	"github.com/magiconair/properties":        {"cmd", "client"},
	"github.com/xdg-go/scram":                 {"broker"},
	"golang.org/x/oauth2":                     {"fetch"},
	"github.com/jcmturner/":                   {"fetch"},
	"github.com/go-jose/go-jose":              {"broker"},
	"github.com/pavlo-v-chernykh/":            {"messages"},
	"github.com/youmark/pkcs8":                {"messages", "test"},
	"software.sslmate.com/src/go-pkcs12":      {"messages"},
	"github.com/klauspost/compress":           {"messages", "persistence", "broker", "cmd", "test"},
	"github.com/pierrec/lz4":                  {"messages", "persistence", "broker", "cmd", "test"},
}

func allowed(list []string, r string) bool { return slices.Contains(list, r) }

func TestImportDirection(t *testing.T) {
	for _, p := range packages(t) {
		r := room(p.ImportPath)
		list, known := ours[r]
		if !known {
			t.Errorf("%s: room %q is not in the table of rooms", p.ImportPath, r)
			continue
		}
		for _, imp := range p.Imports {
			switch {
			case strings.HasPrefix(imp, module):
				to := room(imp)
				if to != r && to != "internal" && !allowed(list, to) {
					t.Errorf("%s imports %s: %s may not import %s", p.ImportPath, imp, r, to)
				}
			case imp == "C":
				t.Errorf("%s uses cgo", p.ImportPath)
			default:
				checkThird(t, p.ImportPath, r, imp)
			}
		}
		for _, imp := range append(p.TestImports, p.XTestImports...) {
			if room(imp) == "test" && strings.HasPrefix(imp, module) && r != "test" && !strings.HasPrefix(imp, module+"test/kafka") {
				t.Errorf("tests of %s import %s: nobody imports test (its fixtures under test/kafka excepted)", p.ImportPath, imp)
			}
		}
	}
}

func checkThird(t *testing.T, from, r, imp string) {
	t.Helper()
	best := ""
	for prefix := range third {
		if strings.HasPrefix(imp, prefix) && len(prefix) > len(best) {
			best = prefix
		}
	}
	if best != "" && !allowed(third[best], r) && !strings.Contains(from, "/gen") {
		t.Errorf("%s imports %s: named in %v only", from, imp, third[best])
	}
	if strings.HasPrefix(imp, "github.com/asynkron/protoactor-go/") && imp != "github.com/asynkron/protoactor-go/actor" {
		t.Errorf("%s imports %s: only protoactor's actor package is used", from, imp)
	}
}

func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		want := "Package " + p.Name + " "
		if p.Name == "main" {
			want = "Command " + filepath.Base(p.Dir) + " "
		}
		if !strings.HasPrefix(p.Doc, want) {
			t.Errorf("%s: package comment starts %q, want %q", p.ImportPath, firstWords(p.Doc), want)
		}
	}
}

func firstWords(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}

// TestFileSizes: a file is one idea, at most 800 lines. Generated code is exempt.
func TestFileSizes(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.GoFiles {
			b, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			if generated(f, b) {
				continue
			}
			if n := strings.Count(string(b), "\n"); n > 800 {
				t.Errorf("%s/%s has %d lines, at most 800", p.ImportPath, f, n)
			}
		}
	}
}

func generated(name string, b []byte) bool {
	return strings.HasPrefix(name, "zz_") || strings.HasSuffix(name, ".pb.go") || strings.Contains(string(b[:min(len(b), 400)]), "Code generated ")
}

// TestNoMutexInActors: an actor's state is touched only in Receive, and cores are pure.
func TestNoMutexInActors(t *testing.T) {
	for _, p := range packages(t) {
		if r := room(p.ImportPath); r != "actors" && r != "fsm" {
			continue
		}
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if id, ok := sel.X.(*ast.Ident); ok && id.Name == "sync" && strings.Contains(sel.Sel.Name, "Mutex") {
					t.Errorf("%s/%s uses sync.%s", p.ImportPath, f, sel.Sel.Name)
				}
				return true
			})
		}
	}
}

// TestAPIFileHeads: one file per Kafka API key, whose head says what is served.
func TestAPIFileHeads(t *testing.T) {
	files, err := filepath.Glob("../../broker/[0-9]*_*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		head := string(b[:min(len(b), 1500)])
		if !strings.Contains(strings.ToLower(head), "version") {
			t.Errorf("%s: the head doesn't say which versions are served", f)
		}
	}
}
