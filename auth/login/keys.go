package login

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/auth/reload"
	"github.com/forerunner-build/forerunner/secrets"
)

// errUnsealed is the error for everything that was not sealed here for this purpose.
var errUnsealed = errors.New("it was not made here, or with other keys")

// keys seal the contents of cookies. Their file may change at any time.
type keys struct{ *reload.Value[[]cipher.AEAD] }

// openKeys reads a file of keys. An own one belongs to this program, and is made if necessary.
func openKeys(file string, own bool, log *zap.Logger) (keys, error) {
	if own {
		if _, err := secrets.OfOwn(file); err != nil {
			return keys{}, fmt.Errorf("%s: %w", file, err)
		}
	}
	v, err := reload.New(log, func(contents [][]byte) ([]cipher.AEAD, error) { return parseKeys(contents[0]) }, file)
	if err != nil {
		return keys{}, fmt.Errorf("%s: %w", file, err)
	}
	return keys{v}, nil
}

// parseKeys makes a key of each line.
func parseKeys(text []byte) (list []cipher.AEAD, err error) {
	all, err := secrets.Parse(text)
	if err != nil {
		return nil, err
	}
	for _, secret := range all {
		key, err := hkdf.Key(sha256.New, []byte(secret), nil, "forerunner pages", sha256.Size)
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
	return list, nil
}

// seal returns v as a text that no one else can read or make. It opens for the same purpose only.
func (k keys) seal(purpose string, v any) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(k.Get()[0].Seal(nil, nil, plain, []byte(purpose))), nil
}

// open unseals a text into v.
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
