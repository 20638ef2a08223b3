package certs

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrNoRule tells that no rule fits the subject of a certificate. The client is refused.
var ErrNoRule = errors.New("no rule of ssl.principal.mapping.rules fits")

// Rules make a user's name of a certificate's subject. The zero value takes the whole
// subject, as DEFAULT does.
type Rules []rule

type rule struct {
	whole       *regexp.Regexp // must fit all of the subject; nil: DEFAULT
	pattern     *regexp.Regexp // what is replaced in it, wherever it fits
	replacement string
	toCase      byte // 'L', 'U' or 0
}

var (
	ruleForm  = regexp.MustCompile(`^\s*(DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(,|$)`)
	groupForm = regexp.MustCompile(`\\(.)|\$(\d+)|\$`)
)

// ParseRules reads ssl.principal.mapping.rules: DEFAULT and RULE:pattern/replacement/[LU],
// separated by commas. Patterns are RE2. As in Kafka one has to fit the whole
// subject, and then every piece that it fits is replaced: with a lazy group at its end that
// is less than the whole.
func ParseRules(text string) (Rules, error) {
	var out Rules
	for rest := strings.TrimSpace(text); rest != ""; {
		m := ruleForm.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("ssl.principal.mapping.rules: %q is neither DEFAULT nor RULE:pattern/replacement/[LU]", rest)
		}
		rest = rest[len(m[0]):]
		if m[1] == "DEFAULT" {
			out = append(out, rule{})
			continue
		}
		pattern, err := regexp.Compile(m[2])
		if err != nil {
			return nil, fmt.Errorf("ssl.principal.mapping.rules: pattern %q: %w", m[2], err)
		}
		whole, err := regexp.Compile("^(?:" + m[2] + ")$")
		if err != nil {
			return nil, fmt.Errorf("ssl.principal.mapping.rules: pattern %q: %w", m[2], err)
		}
		r := rule{whole: whole, pattern: pattern, replacement: expandable(m[3], pattern.NumSubexp())}
		if m[4] != "" {
			r.toCase = m[4][0]
		}
		out = append(out, r)
	}
	return out, nil
}

// expandable turns $1 of Java into ${1} of Go, and \x into x. Of a number that is larger than
// there are groups the last digits are text, and what names no group stands for itself.
func expandable(replacement string, groups int) string {
	return groupForm.ReplaceAllStringFunc(replacement, func(ref string) string {
		if c, ok := strings.CutPrefix(ref, `\`); ok {
			return strings.ReplaceAll(c, "$", "$$")
		}
		digits := strings.TrimPrefix(ref, "$")
		for n := len(digits); n > 0; n-- {
			if group, err := strconv.Atoi(digits[:n]); err == nil && group <= groups {
				return fmt.Sprintf("${%d}%s", group, digits[n:])
			}
		}
		return "$" + ref
	})
}

// Name is the user that a subject stands for, by the first rule that fits.
func (r Rules) Name(subject string) (string, error) {
	if len(r) == 0 {
		return subject, nil
	}
	for _, rule := range r {
		if rule.pattern == nil {
			return subject, nil
		}
		if !rule.whole.MatchString(subject) {
			continue
		}
		name := rule.pattern.ReplaceAllString(subject, rule.replacement)
		switch rule.toCase {
		case 'L':
			name = strings.ToLower(name)
		case 'U':
			name = strings.ToUpper(name)
		}
		return name, nil
	}
	return "", fmt.Errorf("%w %q", ErrNoRule, subject)
}

// User is the user that a certificate stands for.
func (r Rules) User(c *x509.Certificate) (string, error) {
	subject, err := Subject(c)
	if err != nil {
		return "", err
	}
	return r.Name(subject)
}

// keywords are the attributes that RFC 2253 has names for, as Java shows them.
var keywords = map[string]string{
	"2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O", "2.5.4.11": "OU",
	"0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}

// Subject is a certificate's subject as Java's X500Principal.getName has it (RFC 2253,
// last part first).
func Subject(c *x509.Certificate) (string, error) {
	var rdns []asn1.RawValue
	if rest, err := asn1.Unmarshal(c.RawSubject, &rdns); err != nil || len(rest) > 0 {
		return "", fmt.Errorf("subject of a certificate can't be read")
	}
	var b strings.Builder
	for _, rdn := range slices.Backward(rdns) {
		var set []rawAttribute
		if _, err := asn1.UnmarshalWithParams(rdn.FullBytes, &set, "set"); err != nil {
			return "", fmt.Errorf("subject of a certificate can't be read")
		}
		for j, a := range set {
			switch {
			case j > 0:
				b.WriteByte('+')
			case b.Len() > 0:
				b.WriteByte(',')
			}
			b.WriteString(a.String())
		}
	}
	return b.String(), nil
}

// rawAttribute is pkix.AttributeTypeAndValue with its value's bytes.
type rawAttribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

// String is one attribute: text where the type has a name, else its bytes.
func (a rawAttribute) String() string {
	name, named := keywords[a.Type.String()]
	var v any
	if named {
		var full pkix.AttributeTypeAndValue
		if der, err := asn1.Marshal(a); err == nil {
			if _, err = asn1.Unmarshal(der, &full); err == nil {
				v = full.Value
			}
		}
	}
	text, ok := v.(string)
	if !ok {
		if !named {
			name = a.Type.String()
		}
		return name + "=#" + hex.EncodeToString(a.Value.FullBytes)
	}
	return name + "=" + escape(text)
}

// escape is RFC 2253, 2.4.
func escape(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case strings.ContainsRune(`,+"\<>;`, r), i == 0 && (r == '#' || r == ' '), r == ' ' && i == len(s)-1:
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
