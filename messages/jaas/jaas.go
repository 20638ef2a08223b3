// Package jaas reads login entries as Kafka's settings have them. An [Entry] is one; it
// holds a password, which no error of this package shows. It keeps nothing, and never
// looks at what the login module is.
package jaas

import (
	"errors"
	"strings"
)

// Entry is one login entry:
//
//	org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";
type Entry struct {
	Module  string
	Options map[string]string
}

var (
	errEnd   = errors.New("must end with ';'")
	errForm  = errors.New("must be: <login module> required key=\"value\" ... ;")
	errMore  = errors.New("must be one login entry only")
	errQuote = errors.New("a quoted value isn't closed")
)

// Parse reads one login entry. Its errors never show any part of the text,
// which holds a password.
func Parse(text string) (Entry, error) {
	tokens, err := split(text)
	if err != nil {
		return Entry{}, err
	}
	if len(tokens) == 0 || tokens[len(tokens)-1] != (token{text: ";"}) {
		return Entry{}, errEnd
	}
	tokens = tokens[:len(tokens)-1]
	if len(tokens) < 2 || tokens[0].quoted || tokens[1].quoted {
		return Entry{}, errForm
	}
	switch strings.ToLower(tokens[1].text) {
	case "required", "requisite", "sufficient", "optional":
	default:
		return Entry{}, errForm
	}
	e := Entry{Module: tokens[0].text, Options: make(map[string]string)}
	rest := tokens[2:]
	for len(rest) > 0 {
		if rest[0] == (token{text: ";"}) {
			return Entry{}, errMore
		}
		if len(rest) < 3 || rest[0].quoted || rest[1] != (token{text: "="}) || rest[2] == (token{text: ";"}) {
			return Entry{}, errForm
		}
		e.Options[rest[0].text] = rest[2].text
		rest = rest[3:]
	}
	return e, nil
}

type token struct {
	text   string
	quoted bool
}

// split splits as Java's StreamTokenizer does for login entries: words, '='
// and ';' for themselves, quoted text with backslash escapes.
func split(text string) ([]token, error) {
	var out []token
	for i := 0; i < len(text); {
		switch c := text[i]; c {
		case ' ', '\t', '\n', '\r':
			i++
		case '=', ';':
			out = append(out, token{text: string(c)})
			i++
		case '"', '\'':
			value, n, ok := quoted(text[i:])
			if !ok {
				return nil, errQuote
			}
			out = append(out, token{text: value, quoted: true})
			i += n
		default:
			j := i
			for j < len(text) && !strings.ContainsRune(" \t\r\n=;\"'", rune(text[j])) {
				j++
			}
			out = append(out, token{text: text[i:j]})
			i = j
		}
	}
	return out, nil
}

func quoted(text string) (value string, n int, ok bool) {
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == text[0]:
			return b.String(), i + 1, true
		case text[i] == '\\' && i+1 < len(text):
			i++
			switch text[i] {
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			default:
				b.WriteByte(text[i])
			}
		default:
			b.WriteByte(text[i])
		}
	}
	return "", 0, false
}
