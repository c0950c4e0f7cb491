package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// components lists the modules that each program is built of, as the program itself says.
func (r *release) components(stage, arch string) error {
	for _, p := range names {
		list := filepath.Join(r.out, fmt.Sprintf("%s_%s_linux_%s.cdx.json", p.name, r.version, arch))
		cmd := r.command(nil, "go", "tool", "cyclonedx-gomod", "bin", "-json", "-noserial", "-notimestamp", "-std",
			"-version", "v"+r.version, "-output", list, filepath.Join(stage, arch, p.name))
		cmd.Dir = filepath.Join(r.source, "release") // the tool is this module's
		if err := errors.Join(cmd.Run(), forgetTool(list)); err != nil {
			return fmt.Errorf("components of %s: %w", p.name, err)
		}
	}
	return nil
}

// forgetTool removes the checksums of the program that made a list: they depend on the machine and
// its settings of Go, and the list does not.
func forgetTool(list string) error {
	content, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(content), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		return err
	}
	if bom.Metadata == nil || bom.Metadata.Tools == nil || bom.Metadata.Tools.Tools == nil {
		return fmt.Errorf("%s does not name what made it", list)
	}
	for i := range *bom.Metadata.Tools.Tools {
		(*bom.Metadata.Tools.Tools)[i].Hashes = nil
	}
	var without bytes.Buffer
	if err := cdx.NewBOMEncoder(&without, cdx.BOMFileFormatJSON).SetPretty(true).Encode(&bom); err != nil {
		return err
	}
	return os.WriteFile(list, without.Bytes(), 0o644)
}
