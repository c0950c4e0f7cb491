package kind

import (
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/profiles"
)

// A Kind is what actions that are alike have in common. An empty field stands for what is not
// known.
type Kind struct {
	Mnemonic string // of RequestMetadata
	Tool     string // of ToolOf
	Platform string // its properties in one form
	// Configuration is configuration_id of RequestMetadata.
	Configuration string
}

// Digest identifies k; false if too little is known for anything to be alike.
func (k Kind) Digest(fn digest.Function) (digest.Digest, bool) {
	if k.Mnemonic == "" && k.Tool == "" {
		return digest.Digest{}, false
	}
	d, _, err := digest.OfMessage(fn, &profiles.CoarseKey{
		Mnemonic: k.Mnemonic, Tool: k.Tool, Platform: k.Platform, Configuration: k.Configuration,
	})
	return d, err == nil
}
