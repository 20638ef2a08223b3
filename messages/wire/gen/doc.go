// Command gen turns the schema files of messages/wire/schema into Go: structs,
// defaults, encoders and decoders for every version, and a registry. The files
// look like Kafka's own message definitions (JSON with // comments), so a
// schema of Kafka can be dropped in and works.
//
// It is run by `go generate ./messages/wire`; its test fails while the
// committed files differ from what it would write. It knows the types bool,
// int8 to int64, uint16, float64, string, bytes, uuid, arrays and structs, nullable
// strings, bytes and arrays, tagged fields with defaults, version ranges and
// flexible versions. Nullable structs and records aren't known and
// are refused.
package main
