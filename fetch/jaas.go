package fetch

import (
	"errors"
	"strings"
)

// jaasEntry is one login entry:
//
//	org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";
type jaasEntry struct {
	module  string
	options map[string]string
}

var (
	errJAASEnd   = errors.New("must end with ';'")
	errJAASForm  = errors.New("must be: <login module> required key=\"value\" ... ;")
	errJAASMore  = errors.New("must be one login entry only")
	errJAASQuote = errors.New("a quoted value isn't closed")
)

// parseJAAS reads one login entry. Its errors never show any part of the text,
// which holds a password.
func parseJAAS(text string) (jaasEntry, error) {
	tokens, err := jaasTokens(text)
	if err != nil {
		return jaasEntry{}, err
	}
	if len(tokens) == 0 || tokens[len(tokens)-1] != (jaasToken{text: ";"}) {
		return jaasEntry{}, errJAASEnd
	}
	tokens = tokens[:len(tokens)-1]
	if len(tokens) < 2 || tokens[0].quoted || tokens[1].quoted {
		return jaasEntry{}, errJAASForm
	}
	switch strings.ToLower(tokens[1].text) {
	case "required", "requisite", "sufficient", "optional":
	default:
		return jaasEntry{}, errJAASForm
	}
	e := jaasEntry{module: tokens[0].text, options: make(map[string]string)}
	rest := tokens[2:]
	for len(rest) > 0 {
		if rest[0] == (jaasToken{text: ";"}) {
			return jaasEntry{}, errJAASMore
		}
		if len(rest) < 3 || rest[0].quoted || rest[1] != (jaasToken{text: "="}) || rest[2] == (jaasToken{text: ";"}) {
			return jaasEntry{}, errJAASForm
		}
		e.options[rest[0].text] = rest[2].text
		rest = rest[3:]
	}
	return e, nil
}

type jaasToken struct {
	text   string
	quoted bool
}

// jaasTokens splits as Java's StreamTokenizer does for login entries: words, '='
// and ';' for themselves, quoted text with backslash escapes.
func jaasTokens(text string) ([]jaasToken, error) {
	var out []jaasToken
	for i := 0; i < len(text); {
		switch c := text[i]; c {
		case ' ', '\t', '\n', '\r':
			i++
		case '=', ';':
			out = append(out, jaasToken{text: string(c)})
			i++
		case '"', '\'':
			value, n, ok := jaasQuoted(text[i:])
			if !ok {
				return nil, errJAASQuote
			}
			out = append(out, jaasToken{text: value, quoted: true})
			i += n
		default:
			j := i
			for j < len(text) && !strings.ContainsRune(" \t\r\n=;\"'", rune(text[j])) {
				j++
			}
			out = append(out, jaasToken{text: text[i:j]})
			i = j
		}
	}
	return out, nil
}

func jaasQuoted(text string) (value string, n int, ok bool) {
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
