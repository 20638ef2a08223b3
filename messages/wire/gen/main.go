package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("dir", ".", "folder of package wire: reads schema/*.json there, writes zz_generated_*.go")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run writes only files whose content changed and removes generated files that
// have no schema any more.
func run(dir string) error {
	files, err := generate(filepath.Join(dir, "schema"))
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "zz_generated_*.go"))
	if err != nil {
		return fmt.Errorf("list generated files: %w", err)
	}
	for _, name := range old {
		if _, ok := files[filepath.Base(name)]; !ok {
			if err := os.Remove(name); err != nil {
				return fmt.Errorf("remove %s: %w", name, err)
			}
		}
	}
	for base, content := range files {
		name := filepath.Join(dir, base)
		if have, err := os.ReadFile(name); err == nil && bytes.Equal(have, content) {
			continue
		}
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// generate returns the generated files by base name.
func generate(schemaDir string) (map[string][]byte, error) {
	msgs, err := loadSchemas(schemaDir)
	if err != nil {
		return nil, err
	}
	out := make(map[string][]byte, len(msgs)+1)
	for _, m := range msgs {
		src, err := emitMessage(m)
		if err != nil {
			return nil, fmt.Errorf("emit %s: %w", m.Name, err)
		}
		out["zz_generated_"+snake(m.Name)+".go"] = src
	}
	src, err := emitRegistry(msgs)
	if err != nil {
		return nil, fmt.Errorf("emit registry: %w", err)
	}
	out["zz_generated_registry.go"] = src
	return out, nil
}
