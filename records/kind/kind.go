package kind

import (
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/profiles"
)

// A Kind is the common properties of similar actions. An empty field means that the property is
// unknown.
type Kind struct {
	Mnemonic string // of RequestMetadata
	Tool     string // of ToolOf
	Platform string // its properties in canonical form
	// Configuration is configuration_id of RequestMetadata.
	Configuration string
}

// Digest identifies k; false if too little is known to call actions similar.
func (k Kind) Digest(fn digest.Function) (digest.Digest, bool) {
	if k.Mnemonic == "" && k.Tool == "" {
		return digest.Digest{}, false
	}
	d, _, err := digest.OfMessage(fn, &profiles.CoarseKey{
		Mnemonic: k.Mnemonic, Tool: k.Tool, Platform: k.Platform, Configuration: k.Configuration,
	})
	return d, err == nil
}
