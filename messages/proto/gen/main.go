// Command gen makes the .pb.go files of messages/proto from its .proto files,
// with the compiler and the generator of this module's dependencies instead of
// protoc. Run it by go generate; it works in the current folder.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	files, err := generate(context.Background(), ".")
	if err == nil {
		for name, content := range files {
			if err = os.WriteFile(name, content, 0o644); err != nil {
				break
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// generate returns the generated files of all .proto files in folder, by name.
func generate(ctx context.Context, folder string) (map[string][]byte, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.proto"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", folder, err)
	}
	names := make([]string, len(paths))
	for i, p := range paths {
		names[i] = filepath.Base(p)
	}
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{folder}},
		SourceInfoMode: protocompile.SourceInfoStandard, // comments
	}
	compiled, err := compiler.Compile(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("compile: %w", err)
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: names,
		Parameter:      new("paths=source_relative"),
	}
	for _, f := range compiled {
		request.ProtoFile = append(request.ProtoFile, protodesc.ToFileDescriptorProto(f))
	}
	plugin, err := protogen.Options{}.New(request)
	if err != nil {
		return nil, fmt.Errorf("read descriptors: %w", err)
	}
	for _, f := range plugin.Files {
		if f.Generate {
			internal_gengo.GenerateFile(plugin, f)
		}
	}
	response := plugin.Response()
	if response.Error != nil {
		return nil, fmt.Errorf("generate: %s", response.GetError())
	}
	out := make(map[string][]byte, len(response.File))
	for _, f := range response.File {
		out[f.GetName()] = []byte(withoutToolVersions(f.GetContent()))
	}
	return out, nil
}

// withoutToolVersions drops the header lines that name the versions of tools
// that weren't used.
func withoutToolVersions(s string) string {
	lines := strings.SplitAfter(s, "\n")
	kept := lines[:0]
	for _, l := range lines {
		if strings.HasPrefix(l, "// versions:") || strings.HasPrefix(l, "// \tprotoc") {
			continue
		}
		kept = append(kept, l)
	}
	return strings.Join(kept, "")
}
