// Package wire is the encoding of what the KIP adds to Kafka: requests and
// responses with API keys 2094 to 2106, the records of __mirror_state, the
// value of the MIRROR_PID_RESET control record, and the records of the metadata
// log. Structs, defaults and codecs are generated from the files in schema/.
//
// Its main types are the generated ones: requests and responses satisfy
// kmsg.Request and kmsg.Response, so kgo sends them once [RaiseMaxVersions] has
// told it the keys; [MetadataRecord] is any record of the metadata log. Always
// start from a New function: zero is not every field's default. Decoders
// take hostile input: they never panic, never allocate more than a small multiple
// of the bytes they were given, refuse versions above the newest and bytes left
// over, and keep tagged fields that they don't know. The package owns no state.
package wire

//go:generate go run ./gen
