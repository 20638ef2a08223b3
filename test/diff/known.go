package diff

import (
	"regexp"
	"slices"
	"strings"
)

// known is a difference with its reason. Patterns: * stands for anything.
type known struct {
	key  int16
	step string // pattern of the step's name
	path string // pattern of the path
	// kafka and kagami are what each side answers, "" for anything.
	kafka, kagami string
	// seldom: it may be missing, since it depends on time.
	seldom bool
	why    string
}

func (k known) explains(d difference) bool {
	return (k.key == d.key || k.key == anyKey) && match(k.step, d.step) && match(k.path, d.path) && match(k.kafka, d.kafka) && match(k.kagami, d.kagami)
}

// anyKey in known stands for every request.
const anyKey = -1

var patterns = map[string]*regexp.Regexp{}

func match(pattern, text string) bool {
	if pattern == "" || pattern == "*" {
		return true
	}
	re := patterns[pattern]
	if re == nil {
		re = regexp.MustCompile("(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
		patterns[pattern] = re
	}
	return re.MatchString(text)
}

// knownDifferences is all that differs, and why.
func knownDifferences() []known {
	return slices.Concat(everywhere(), versionDifferences(), topicDifferences(), configDifferences(), produceDifferences(), fetchDifferences(), groupDifferences())
}
