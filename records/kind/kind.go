package kind

import (
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/profiles"
)

// A Kind has the properties that similar actions share. An empty field means that the property is
// unknown.
type Kind struct {
	Mnemonic string // from RequestMetadata
	Tool     string // from ToolOf
	Platform string // its properties in canonical form
	// Configuration is the configuration_id of RequestMetadata.
	Configuration string
}

// Digest returns a digest that identifies k. It returns false if too little is known to call
// actions similar.
func (k Kind) Digest(fn digest.Function) (digest.Digest, bool) {
	if k.Mnemonic == "" && k.Tool == "" {
		return digest.Digest{}, false
	}
	d, _, err := digest.OfMessage(fn, &profiles.CoarseKey{
		Mnemonic: k.Mnemonic, Tool: k.Tool, Platform: k.Platform, Configuration: k.Configuration,
	})
	return d, err == nil
}
