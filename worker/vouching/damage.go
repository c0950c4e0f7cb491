package vouching

import (
	"errors"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/vfs"
)

// IsDamage reports whether err means that the action used wrong bytes, which no later run gets
// again.
func IsDamage(err error) bool {
	return errors.Is(err, vfs.ErrDamaged) || errors.As(err, new(*cas.DamagedError)) || errors.As(err, new(*cas.WrongPartsError))
}

// DamagedBlobs returns the digests that any of the errors in err names.
func DamagedBlobs(err error) (names []string) {
	switch err := err.(type) {
	case *cas.DamagedError:
		for _, d := range err.Digests {
			names = append(names, d.String())
		}
	case *cas.WrongPartsError:
		names = append(names, err.Digest.String())
	}
	switch wraps := err.(type) {
	case interface{ Unwrap() error }:
		names = append(names, DamagedBlobs(wraps.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, inner := range wraps.Unwrap() {
			names = append(names, DamagedBlobs(inner)...)
		}
	}
	return names
}
