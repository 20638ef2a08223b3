package main

import (
	"fmt"
	"sort"
)

// tagged lists the tagged fields by rising tag, as they go on the wire.
func tagged(fields []*field) []*field {
	var out []*field
	for _, f := range fields {
		if f.Tag != nil {
			out = append(out, f)
		}
	}
	sort.Slice(out, func(i, j int) bool { return *out[i].Tag < *out[j].Tag })
	return out
}

func (e *emitter) structAppend(name string, fields []*field) {
	vname := "v"
	if !e.usesVersion(fields) {
		vname = "_"
	}
	e.p("func (m *%s) append(dst []byte, %s int16) []byte {", name, vname)
	for _, f := range fields {
		if f.Tag == nil {
			e.cond(f, func() { e.appendField(f, "dst") })
		}
	}
	if !e.m.flexible.empty() {
		open, end := "", ""
		if e.flex() != "true" {
			open, end = "if "+e.flex()+" {", "}"
		}
		e.p("%s", open)
		if ts := tagged(fields); len(ts) == 0 {
			e.p("dst = appendUnknownTags(dst, &m.UnknownTags)")
		} else {
			e.p("var t tagWriter")
			for _, f := range ts {
				e.cond(f, func() {
					e.p("if %s {", notDefault(f))
					e.appendField(f, "t.buf")
					e.p("t.end(%d)\n}", *f.Tag)
				})
			}
			e.p("dst = t.append(dst, &m.UnknownTags)")
		}
		e.p("%s", end)
	}
	e.p("return dst\n}\n")
}

// usesVersion reports whether the code of a struct depends on the version.
func (e *emitter) usesVersion(fields []*field) bool {
	if f := e.flex(); f != "true" && f != "false" && (len(fields) > 0 || !e.m.flexible.empty()) {
		return true
	}
	for _, f := range fields {
		if f.isStruct || f.vers.overlaps(e.m.valid) && !f.vers.covers(e.m.valid) ||
			!f.nullable.empty() && !f.nullable.covers(e.m.valid) {
			return true
		}
	}
	return false
}

func notDefault(f *field) string {
	n := "m." + goName(f.Name)
	switch {
	case f.array && !f.nullable.empty(), f.nullStruct():
		return n + " != nil"
	case f.array || f.elem == "bytes":
		return "len(" + n + ") > 0"
	case f.elem == "uuid":
		return "!" + n + ".IsZero()"
	case f.isStruct:
		return "true"
	case f.elem == "bool" && f.def == "false":
		return n
	case f.elem == "bool":
		return "!" + n
	default:
		return n + " != " + f.def
	}
}

// nullableExpr is the Go expression for "null is allowed in this version", ""
// when it never is.
func (e *emitter) nullableExpr(f *field) string {
	switch {
	case f.nullable.empty():
		return ""
	case f.nullable.covers(e.m.valid):
		return "true"
	default:
		return fmt.Sprintf("v >= %d", f.nullable.lo)
	}
}

func (e *emitter) appendField(f *field, dst string) {
	n, flex, null := "m."+goName(f.Name), e.flex(), e.nullableExpr(f)
	if f.array {
		if null == "" {
			e.p("%s = appendArrayLen(%s, len(%s), %s)", dst, dst, n, flex)
		} else {
			e.p("%s = appendNullableArrayLen(%s, len(%s), %s == nil && %s, %s)", dst, dst, n, n, null, flex)
		}
		e.p("for i := range %s {", n)
		e.appendValue(f, dst, n+"[i]", "")
		e.p("}")
		return
	}
	e.appendValue(f, dst, n, null)
}

func (e *emitter) appendValue(f *field, dst, n, null string) {
	flex := e.flex()
	switch {
	case f.nullStruct():
		e.p("if %s == nil {\n%s = kbin.AppendInt8(%s, -1)\n} else {\n%s = %s.append(kbin.AppendInt8(%s, 1), v)\n}", n, dst, dst, dst, n, dst)
	case f.isStruct:
		e.p("%s = %s.append(%s, v)", dst, n, dst)
	case f.elem == "string" && null != "":
		e.p("%s = appendNullableString(%s, %s, %s, %s)", dst, dst, n, null, flex)
	case f.elem == "string":
		e.p("%s = appendString(%s, %s, %s)", dst, dst, n, flex)
	case f.elem == "bytes" && null != "":
		e.p("%s = appendNullableBytes(%s, %s, %s, %s)", dst, dst, n, null, flex)
	case f.elem == "bytes":
		e.p("%s = appendBytes(%s, %s, %s)", dst, dst, n, flex)
	case f.elem == "uuid":
		e.p("%s = append(%s, %s[:]...)", dst, dst, n)
	default:
		e.p("%s = kbin.Append%s(%s, %s)", dst, goName(f.elem), dst, n)
	}
}

func (e *emitter) structRead(name string, fields []*field) {
	vname := "v"
	if !e.usesVersion(fields) {
		vname = "_"
	}
	e.p("func (m *%s) read(r *reader, %s int16) {", name, vname)
	for _, f := range fields {
		if f.Tag == nil {
			e.cond(f, func() { e.readField(f, "r") })
		}
	}
	if !e.m.flexible.empty() {
		open, end := "", ""
		if e.flex() != "true" {
			open, end = "if "+e.flex()+" {", "}"
		}
		e.p("%s", open)
		if ts := tagged(fields); len(ts) == 0 {
			e.p("r.unknownTags(&m.UnknownTags)")
		} else {
			e.p("for it := r.tags(); it.next(r); {\nt := &it.value\nswitch it.tag {")
			for _, f := range ts {
				e.p("case %d:", *f.Tag)
				e.readField(f, "t")
				e.p("it.done(r)")
			}
			e.p("default:\nit.keep(r, &m.UnknownTags)\n}\n}")
		}
		e.p("%s", end)
	}
	e.p("}\n")
}

func (e *emitter) readField(f *field, r string) {
	n, flex, null := "m."+goName(f.Name), e.flex(), e.nullableExpr(f)
	if !f.array {
		e.readValue(f, r, n, null)
		return
	}
	fn := "arrayLen"
	if null != "" {
		fn = "nullableArrayLen"
		flex = null + ", " + flex
	}
	elem := f.elem
	if !f.isStruct {
		elem = primitives[f.elem]
	}
	e.p("if n := %s.%s(%d, %s); n >= 0 {", r, fn, e.minSize(f), flex)
	e.p("%s = make([]%s, 0, min(n, prealloc))", n, elem)
	e.p("for ; n > 0 && %s.err == nil; n-- {\nvar e %s", r, elem)
	if f.isStruct {
		e.p("e.Default()")
	}
	e.readValue(f, r, "e", "")
	e.p("%s = append(%s, e)\n}\n}", n, n)
}

func (e *emitter) readValue(f *field, r, n, null string) {
	flex := e.flex()
	switch {
	case f.nullStruct():
		e.p("if %s.int8() >= 0 {\n%s = &%s{}\n%s.Default()\n%s.read(%s, v)\n}", r, n, f.elem, n, n, r)
	case f.isStruct:
		e.p("%s.read(%s, v)", n, r)
	case f.elem == "string" && null != "":
		e.p("%s = %s.nullableString(%s, %s)", n, r, null, flex)
	case f.elem == "string":
		e.p("%s = %s.string(%s)", n, r, flex)
	case f.elem == "bytes" && null != "":
		e.p("%s = %s.nullableBytes(%s, %s)", n, r, null, flex)
	case f.elem == "bytes":
		e.p("%s = %s.bytes(%s)", n, r, flex)
	default:
		e.p("%s = %s.%s()", n, r, f.elem)
	}
}

// minSize is the least number of bytes that one element of an array takes in
// any version: it bounds what a length field can make a decoder allocate.
func (e *emitter) minSize(f *field) int {
	flexible := !e.m.flexible.empty()
	if !f.isStruct {
		return minPrimitive(f.elem, flexible)
	}
	fields := f.Fields
	for _, c := range e.m.CommonStructs {
		if e.m.Name+goName(c.Name) == f.elem {
			fields = c.Fields
		}
	}
	size := 0
	for _, g := range fields {
		switch {
		case g.Tag != nil || !g.vers.covers(e.m.valid):
		case g.array && flexible, g.nullStruct():
			size++
		case g.array:
			size += 4
		default:
			size += e.minSize(g)
		}
	}
	if e.m.flexible.covers(e.m.valid) {
		size++
	}
	return max(size, 1)
}

func minPrimitive(t string, flexible bool) int {
	switch t {
	case "int16", "uint16":
		return 2
	case "int32":
		return 4
	case "int64", "float64":
		return 8
	case "uuid":
		return 16
	case "string":
		if flexible {
			return 1
		}
		return 2
	case "bytes":
		if flexible {
			return 1
		}
		return 4
	default:
		return 1
	}
}

// emitRegistry lists all messages, so that tests and servers can walk them.
func emitRegistry(msgs []*message) ([]byte, error) {
	e := &emitter{m: &message{}}
	list := func(doc, sig, typ, zero string) {
		e.p("%s\nfunc %s {\nswitch key {", doc, sig)
		for _, m := range msgs {
			if m.Type == typ {
				e.p("case %d:\nreturn NewPtr%s()", *m.APIKey, m.Name)
			}
		}
		e.p("default:\nreturn %s\n}\n}\n", zero)
	}
	list("// RequestForKey returns an empty request for an API key of the KIP, nil for any other key.",
		"RequestForKey(key int16) kmsg.Request", "request", "nil")
	list("// ResponseForKey returns an empty response for an API key of the KIP, nil for any other key.",
		"ResponseForKey(key int16) kmsg.Response", "response", "nil")
	list("// NewMetadataRecord returns an empty metadata record of a type, nil for an unknown type.",
		"NewMetadataRecord(key int16) MetadataRecord", "metadata", "nil")
	e.p("// allMessages returns one empty message of every schema, by name.\nfunc allMessages() map[string]codec {\nreturn map[string]codec{")
	for _, m := range msgs {
		e.p("%q: NewPtr%s(),", m.Name, m.Name)
	}
	e.p("}\n}\n")
	e.p("// metadataRecordName is the schema's name of a record type, \"\" if unknown.\nfunc metadataRecordName(key int16) string {\nswitch key {")
	for _, m := range msgs {
		if m.Type == "metadata" {
			e.p("case %d:\nreturn %q", *m.APIKey, m.Name)
		}
	}
	e.p("default:\nreturn \"\"\n}\n}")
	return e.finish()
}
