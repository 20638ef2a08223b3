package jaas

import (
	"strconv"
	"strings"
	"testing"
)

// FuzzParse: an entry is refused or whole, and an error shows nothing of the text. What was read and is
// written again is read as the same.
func FuzzParse(f *testing.F) {
	f.Add(`org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b;\"c" ;`)
	f.Add(`m optional a='x' b=y;`)
	f.Add(`m required a="\`)
	f.Add(`m required a="x";m required b="y";`)
	f.Add("m\trequired\nuser_\xff=\"\x00\" = ;")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			if len(text) > 40 && strings.Contains(err.Error(), text) {
				t.Fatal("the text is shown")
			}
			return
		}
		if e.Module == "" || strings.ContainsAny(e.Module, " \t\r\n=;\"'") {
			t.Fatalf("%q", e)
		}
		again := e.Module + " required"
		for k, v := range e.Options {
			if quoted := strconv.Quote(v); quoted[1:len(quoted)-1] != v {
				return // written in another way
			}
			again += " " + k + `="` + v + `"`
		}
		back, err := Parse(again + ";")
		if err != nil || len(back.Options) != len(e.Options) {
			t.Fatalf("%q became %q: %v", text, again, err)
		}
		for k, v := range e.Options {
			if back.Options[k] != v {
				t.Fatalf("%q: %q became %q", k, v, back.Options[k])
			}
		}
	})
}
