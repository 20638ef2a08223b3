package stores

import (
	"encoding/asn1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// A file may be anything: cut off while it is renewed, a device, or made to cost much. What the
// parsers would believe of it is looked at first.
const (
	// fileBytesMax is the largest store. The system's own has some 300 KB.
	fileBytesMax = 16 << 20
	// iterationsMax is the most that a PKCS12 may ask for to make a key of its password, about a
	// second each time. Usual are 2048 to 600,000.
	iterationsMax = 5_000_000
	derDepthMax   = 32
)

// Faults that files have before they are read.
var (
	ErrNoFile     = errors.New("it is no ordinary file")
	ErrLarge      = fmt.Errorf("it has more than %d bytes", fileBytesMax)
	ErrIterations = fmt.Errorf("it wants more than %d iterations to make a key of the password: write it anew with fewer", iterationsMax)
	errLength     = errors.New("a length in it is larger than what is left of it")
)

// ReadFile reads an ordinary file of a size that a store can have, for files that settings name beside
// stores, too.
func ReadFile(path string) ([]byte, error) {
	info, err := os.Stat(path) // before it is opened: that waits for the other end of a pipe
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: %w", path, ErrNoFile)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	if err == nil && len(b) > fileBytesMax {
		err = fmt.Errorf("%s: %w", path, ErrLarge)
	}
	return b, err
}

const (
	jksPrivateKey = 1
	jksTrusted    = 2
	jksDigest     = 20
)

// checkJKS walks a JKS: its parser takes as much memory as each length in it says.
//
//	magic, version, n entries: tag, alias, time, then
//	  1 a key:  length, bytes, m certificates
//	  2 trust:  one certificate (from version 2 on its type first)
//	SHA-1 digest
func checkJKS(b []byte) error {
	w := jksWalk{rest: b}
	w.skip(4)
	w.version = w.number()
	for range w.number() {
		tag := w.number()
		w.text()
		w.skip(8)
		switch tag {
		case jksPrivateKey:
			w.skip(w.number())
			for range w.number() {
				if w.certificate(); w.short {
					return errLength
				}
			}
		case jksTrusted:
			w.certificate()
		default:
			return errLength // or something else is wrong before it
		}
		if w.short {
			return errLength
		}
	}
	if w.skip(jksDigest); w.short {
		return errLength
	}
	return nil
}

// jksWalk is what is left. Once something was missing everything is.
type jksWalk struct {
	rest    []byte
	version uint32
	short   bool
}

func (w *jksWalk) skip(n uint32) []byte {
	if w.short || uint64(n) > uint64(len(w.rest)) {
		w.short = true
		return make([]byte, min(n, 4))
	}
	b := w.rest[:n]
	w.rest = w.rest[n:]
	return b
}

func (w *jksWalk) number() uint32 { return binary.BigEndian.Uint32(w.skip(4)) }

func (w *jksWalk) text() { w.skip(uint32(binary.BigEndian.Uint16(w.skip(2)))) }

func (w *jksWalk) certificate() {
	if w.version != 1 {
		w.text()
	}
	w.skip(w.number())
}

// checkIterations looks for what a PKCS12 asks for: everywhere in it the number of iterations stands
// behind the salt, SEQUENCE { ..., OCTET STRING salt, INTEGER iterations, ... }. What is encrypted
// can't be looked at; a tool that writes one number writes all alike.
func checkIterations(der []byte, depth int) error {
	var before asn1.RawValue
	for len(der) > 0 && depth < derDepthMax {
		var v asn1.RawValue
		rest, err := asn1.Unmarshal(der, &v)
		if err != nil {
			return nil //nolint:nilerr // the parser says what is wrong, or it was no DER but bytes
		}
		switch {
		case v.Class == asn1.ClassUniversal && v.Tag == asn1.TagInteger && before.Class == asn1.ClassUniversal && before.Tag == asn1.TagOctetString:
			var n int64
			if _, err := asn1.Unmarshal(v.FullBytes, &n); err != nil || n > iterationsMax {
				return ErrIterations
			}
		case v.IsCompound, v.Class == asn1.ClassUniversal && v.Tag == asn1.TagOctetString:
			if err := checkIterations(v.Bytes, depth+1); err != nil {
				return err
			}
		}
		before, der = v, rest
	}
	return nil
}
