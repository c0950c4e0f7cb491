package login

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/auth/reload"
)

// minSecret is the length of a secret in characters.
const minSecret = 32

// errUnsealed is what is said of everything that was not sealed here, for this.
var errUnsealed = errors.New("it was not made here, or with other keys")

// keys seal what browsers keep. The file they are from may change at any time.
type keys struct{ *reload.Value[[]cipher.AEAD] }

// openKeys reads a file of keys. If there is none and it may be made, it is.
func openKeys(file string, create bool, log *zap.Logger) (keys, error) {
	if _, err := os.Stat(file); create && errors.Is(err, fs.ErrNotExist) {
		if err := makeKey(file); err != nil {
			return keys{}, err
		}
	}
	v, err := reload.New(log, func(contents [][]byte) ([]cipher.AEAD, error) { return parseKeys(contents[0]) }, file)
	if err != nil {
		return keys{}, fmt.Errorf("%s: %w", file, err)
	}
	return keys{v}, nil
}

// makeKey writes a file with a new key, whole or not at all.
func makeKey(file string) (err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".login") // for its owner only
	if err != nil {
		return err
	}
	_, err = f.WriteString(rand.Text() + rand.Text() + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// parseKeys makes a key of each line.
func parseKeys(text []byte) (list []cipher.AEAD, err error) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		secret := bytes.TrimSpace(lines.Bytes())
		if len(secret) == 0 {
			continue
		}
		if len(secret) < minSecret {
			return nil, fmt.Errorf("a secret has %d characters, at least %d are needed (such as of \"openssl rand -hex 32\")", len(secret), minSecret)
		}
		key, err := hkdf.Key(sha256.New, secret, nil, "forerunner pages", sha256.Size)
		if err != nil {
			return nil, err
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		sealer, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		list = append(list, sealer)
	}
	if len(list) == 0 {
		return nil, errors.New("there is no secret in it (\"openssl rand -hex 32\" makes one)")
	}
	return list, nil
}

// seal returns v as a text that nobody else can read or make. It opens for the same purpose only.
func (k keys) seal(purpose string, v any) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(k.Get()[0].Seal(nil, nil, plain, []byte(purpose))), nil
}

// open reads what was sealed into v.
func (k keys) open(purpose, sealed string, v any) error {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return errUnsealed
	}
	for _, key := range k.Get() {
		if plain, err := key.Open(nil, nil, raw, []byte(purpose)); err == nil {
			return json.Unmarshal(plain, v)
		}
	}
	return errUnsealed
}
