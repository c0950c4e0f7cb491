package secrets

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// minLength is how many characters a secret has at least.
const minLength = 32

const hint = "\"openssl rand -hex 32\" makes one"

// Parse returns the secrets in a text, one per line.
func Parse(text []byte) (list []string, err error) {
	for line := range bytes.Lines(text) {
		secret := string(bytes.TrimSpace(line))
		switch {
		case secret == "":
			continue
		case strings.ContainsFunc(secret, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }):
			return nil, fmt.Errorf("a secret has characters that cannot be printed (%s)", hint)
		case len(secret) < minLength:
			return nil, fmt.Errorf("a secret has %d characters, at least %d are needed (%s)", len(secret), minLength, hint)
		}
		list = append(list, secret)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the file has no secret (%s)", hint)
	}
	return list, nil
}

// Create writes a file with a new secret, and replaces an existing one.
func Create(file string) (secret string, err error) {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(file)) // for its owner only
	if err != nil {
		return "", err
	}
	secret = rand.Text() + rand.Text()
	_, err = f.WriteString(secret + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return secret, nil
}

// OfOwn returns the secret in a file that this program made. It makes a new one if the file is
// missing or damaged, or if everybody may read or change it.
func OfOwn(file string) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return Create(file)
	}
	if err != nil {
		return "", err
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	list, err := Parse(text)
	if err != nil || len(list) != 1 || info.Mode()&0o007 != 0 {
		return Create(file)
	}
	return list[0], nil
}
