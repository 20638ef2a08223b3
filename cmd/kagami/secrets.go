package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"kagami/admin"
	"kagami/messages/configs"
	"kagami/messages/secrets"
	"kagami/persistence/metadata"
)

// secretsKeyEnv has the keys' text where no file does.
const secretsKeyEnv = "KAGAMI_SECRETS_KEY" //nolint:gosec // the name of a variable

// secretsKeyBytesMax bounds the file of keys: a hundred of them and comments.
const secretsKeyBytesMax = 64 << 10

// loadSecrets reads this node's keys, nil if there are none.
func loadSecrets(file string, env func(string) (string, bool)) (*secrets.Ring, error) {
	text, set := env(secretsKeyEnv)
	switch {
	case file != "" && set:
		return nil, fmt.Errorf("%s and %s in the environment are both set: set one", configs.SecretsKeyFile, secretsKeyEnv)
	case set:
		r, err := secrets.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s in the environment: %w", secretsKeyEnv, err)
		}
		return r, nil
	case file == "":
		return nil, nil
	}
	b, err := readPrivate(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configs.SecretsKeyFile, err)
	}
	r, err := secrets.Parse(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", configs.SecretsKeyFile, file, err)
	}
	return r, nil
}

// readPrivate reads a file that nobody but its owner may.
func readPrivate(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode(); !mode.IsRegular() || mode.Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %s: it must be a file that only its owner can read (chmod 600)", file, mode)
	}
	b, err := io.ReadAll(io.LimitReader(f, secretsKeyBytesMax+1))
	if err == nil && len(b) > secretsKeyBytesMax {
		err = fmt.Errorf("%s has more than %d bytes", file, secretsKeyBytesMax)
	}
	return b, err
}

// errSecretsKey: there are secrets that this node can't read.
var errSecretsKey = errors.New("secrets of the metadata can't be read by this node")

// unopenedShown is how many secrets an error names.
const unopenedShown = 5

// checkSecrets refuses to go on when the image has secrets that none of the keys opens.
func (n *node) checkSecrets() error {
	faults := n.store.Image().Unopened(n.settings.secrets)
	if len(faults) == 0 || configs.BrokerValues(nil, n.settings.static).Bool(configs.SecretsUnreadable) {
		return nil
	}
	more := ""
	if len(faults) > unopenedShown {
		more, faults = fmt.Sprintf(", and %d more", len(faults)-unopenedShown), faults[:unopenedShown]
	}
	texts := make([]string, len(faults))
	for i, f := range faults {
		texts[i] = strings.ReplaceAll(f.Error(), "\n", "; ")
	}
	return fmt.Errorf("%w: %s%s. Set %s (or %s in the environment) to the keys of the other nodes; if a key is lost, %s=true starts the node without, to set those secrets again",
		errSecretsKey, strings.Join(texts, "; "), more, configs.SecretsKeyFile, secretsKeyEnv, configs.SecretsUnreadable)
}

// watchSecrets tells in the log what can't be read, now and when it changes, and under
// which keys secrets stand.
func (n *node) watchSecrets(context.Context) error {
	told, counted := "", ""
	cancel := n.store.Subscribe(func(d metadata.Delta) {
		if !d.Secrets && told+counted != "" {
			return
		}
		faults := d.New.Unopened(n.settings.secrets)
		text := fmt.Sprint(errors.Join(faults...))
		if len(faults) > 0 && text != told {
			n.log.Error("secrets can't be read by this node: the mirrors and users don't work here", zap.Errors("secrets", faults),
				zap.String("setting", configs.SecretsKeyFile), zap.Strings("keys", n.settings.secrets.IDs()))
		}
		told = text
		counts := d.New.SecretCounts()
		if now := fmt.Sprint(counts); now != counted && n.settings.secrets != nil {
			n.log.Info("keys of the secrets in the metadata", zap.Any("secrets", counts), zap.Strings("unused", unusedKeys(n.settings.secrets, counts)))
			counted = now
		}
	})
	n.defers(func(context.Context) error { cancel(); return nil })
	return nil
}

// unusedKeys are the keys that could be taken out of the file: not the first.
func unusedKeys(ring *secrets.Ring, counts map[string]int) []string {
	return slices.DeleteFunc(ring.IDs(), func(id string) bool { return id == ring.Primary() || counts[id] > 0 })
}

// sampleSecrets counts secrets by key.
func (n *node) sampleSecrets(s *admin.Sample) {
	for id, count := range n.store.Image().SecretCounts() {
		k := admin.SecretSample{Key: id, Readable: n.settings.secrets.Has(id), Count: count}
		if id == "" {
			k.Key = "clear"
		}
		s.Secrets = append(s.Secrets, k)
	}
}

// runSecrets makes a key.
func runSecrets(_ context.Context, args []string, stdout, stderr io.Writer) error {
	fs := pflag.NewFlagSet("secrets", pflag.ContinueOnError)
	const line = "secrets new-key > FILE"
	if err := parse(fs, line, 1, args, stdout, stderr); err != nil {
		return err
	}
	if fs.Arg(0) != "new-key" {
		return usageFault(fs, line, stderr, "say new-key")
	}
	key, err := secrets.NewKey()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, key)
	return err
}
