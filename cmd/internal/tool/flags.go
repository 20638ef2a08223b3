package tool

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"kagami/fetch"
)

// Streams are where a tool writes.
type Streams struct {
	Out io.Writer
	Err io.Writer
}

// What can't be printed can't be reported either: errors of the streams are
// dropped, here and nowhere else.
func printf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

func (s Streams) outf(format string, args ...any) { printf(s.Out, format, args...) }
func (s Streams) outln(args ...any)               { printf(s.Out, "%s", fmt.Sprintln(args...)) }
func (s Streams) errf(format string, args ...any) { printf(s.Err, format, args...) }
func (s Streams) errln(args ...any)               { printf(s.Err, "%s", fmt.Sprintln(args...)) }

// usageError is a fault of the command line: its text is printed, then the
// usage if showUsage is set. Exit code 1 either way, as Kafka's tools have it.
type usageError struct {
	text      string
	showUsage bool
}

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &usageError{text: fmt.Sprintf(format, args...)}
}

// flags is a command line in the style of Kafka's tools: long options, which
// may be cut to an unambiguous prefix.
type flags struct {
	*pflag.FlagSet
	purpose string
	args    map[string]string // what stands for an option's argument in the usage
	help    *bool
	version *bool
}

func newFlags(name, purpose string) *flags {
	f := &flags{FlagSet: pflag.NewFlagSet(name, pflag.ContinueOnError), purpose: purpose, args: map[string]string{}}
	f.SortFlags = true
	f.Usage = func() {}
	f.SetOutput(io.Discard)
	f.help = f.Bool("help", false, "Print usage information.")
	f.version = f.Bool("version", false, "Display the version.")
	return f
}

// text adds an option with an argument.
func (f *flags) text(name, arg, help string) *string {
	f.args[name] = arg
	return f.String(name, "", help)
}

func (f *flags) parse(args []string) error {
	expanded, err := f.expand(args)
	if err != nil {
		return err
	}
	if err := f.Parse(expanded); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			*f.help = true
			return nil
		}
		return &usageError{err.Error(), true}
	}
	if f.NArg() > 0 {
		return &usageError{fmt.Sprintf("%s is not an option", f.Arg(0)), true}
	}
	return nil
}

// expand replaces abbreviated options by their names.
func (f *flags) expand(args []string) ([]string, error) {
	out := slices.Clone(args)
	for i := 0; i < len(out); i++ {
		name, isOption := strings.CutPrefix(out[i], "--")
		if !isOption || name == "" {
			continue
		}
		name, value, hasValue := strings.Cut(name, "=")
		full, err := f.find(name)
		if err != nil {
			return nil, err
		}
		if hasValue {
			out[i] = "--" + full + "=" + value
			continue
		}
		out[i] = "--" + full
		if f.args[full] != "" { // its argument may look like an option
			i++
			if i < len(out) {
				out[i-1] += "=" + out[i]
				out = slices.Delete(out, i, i+1)
				i--
			}
		}
	}
	return out, nil
}

func (f *flags) find(name string) (string, error) {
	if f.Lookup(name) != nil {
		return name, nil
	}
	var found []string
	f.VisitAll(func(fl *pflag.Flag) {
		if strings.HasPrefix(fl.Name, name) {
			found = append(found, fl.Name)
		}
	})
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", &usageError{name + " is not a recognized option", true}
	default:
		return "", &usageError{fmt.Sprintf("%s is ambiguous: %s", name, strings.Join(found, ", ")), true}
	}
}

const (
	usageOptionWidth = 42
	usageTextWidth   = 60
)

func (f *flags) printUsage(w io.Writer) {
	printf(w, "%s\n", f.purpose)
	printf(w, "%-*s %s\n", usageOptionWidth, "Option", "Description")
	printf(w, "%-*s %s\n", usageOptionWidth, "------", "-----------")
	f.VisitAll(func(fl *pflag.Flag) {
		name := "--" + fl.Name
		if arg := f.args[fl.Name]; arg != "" {
			name += " <" + arg + ">"
		}
		for i, line := range wrap(fl.Usage, usageTextWidth) {
			if i > 0 {
				name = ""
			}
			printf(w, "%-*s %s\n", usageOptionWidth, name, line)
		}
	})
}

func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// finish turns a tool's error into its exit code and prints it.
func (f *flags) finish(err error, s Streams) int {
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" {
		s.errln(text)
	}
	var told *fetch.ConnectionError // it has the advice in its text
	if advice := fetch.Advice(err); advice != "" && !errors.As(err, &told) {
		s.errln("(" + advice + ")")
	}
	if op := new(net.OpError); errors.As(err, &op) && op.Op == "dial" {
		s.errln("Nobody answers at that address: is the cluster running, and is this host:port one of its listeners?")
	}
	var u *usageError
	if errors.As(err, &u) && u.showUsage {
		f.printUsage(s.Err)
	}
	return 1
}

// infoOnly handles --help and --version.
func (f *flags) infoOnly(s Streams) bool {
	switch {
	case *f.help:
		f.printUsage(s.Out)
	case *f.version:
		s.outln(Version())
	default:
		return false
	}
	return true
}

// Version is the version of this build, for --version.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}

// errPrinted: what there was to say is on the error stream; only the exit code
// is left.
var errPrinted = errors.New("")
