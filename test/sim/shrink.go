package sim

import (
	"slices"
	"strings"
)

// healCommand ends a run: [world.heal].
const healCommand = "heal"

// play runs commands in a new world. It returns the world and the commands that
// had any meaning, up to the one that broke an invariant.
func play(commands []string, tracing bool) (*world, []string) {
	w := newWorld()
	w.tracing = tracing
	var done []string
	for _, c := range commands {
		if c == healCommand {
			w.note("%s", c)
			w.heal()
			done = append(done, c)
		} else if w.exec(c) {
			done = append(done, c)
		}
		if w.broken != "" {
			break
		}
	}
	return w, done
}

// breaks plays commands and reports whether they break the invariant of this name,
// and the commands that had any meaning.
func breaks(invariant string) func(commands []string) (done []string, broke bool) {
	return func(commands []string) ([]string, bool) {
		w, done := play(commands, false)
		return done, strings.HasPrefix(w.broken, invariant+": ")
	}
}

// shrink drops commands for as long as a run still fails (delta debugging): first
// large pieces of the list, then single ones. tries bounds the number of runs.
func shrink(commands []string, tries int, fails func([]string) ([]string, bool)) []string {
	best, failed := fails(commands)
	if !failed {
		return commands
	}
	for size := max(1, len(best)/2); tries > 0; {
		smaller := false
		for at := len(best) - size; at > -size && tries > 0; at -= size {
			from, to := max(0, at), min(len(best), at+size)
			if from >= to {
				continue
			}
			tries--
			if done, failed := fails(slices.Concat(best[:from], best[to:])); failed {
				best, smaller = done, true
			}
		}
		switch {
		case size > 1:
			size = max(1, size/2)
		case !smaller:
			return best
		}
	}
	return best
}
