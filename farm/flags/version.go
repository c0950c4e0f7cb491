package flags

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// release is the version of a build without a checkout, such as that of an image: -ldflags "-X
// github.com/forerunner-build/forerunner/farm/flags.release=1.2.3". commit, date and changed are
// values that Go does not stamp in all checkouts; changed is empty or "true".
var release, commit, date, changed string

const unknown = "unknown"

// A Build is the source and the tools of a program. Unknown values are "unknown".
type Build struct {
	Version, Commit, Go string
	// Date is the date of the commit.
	Date string
	// Changed says that files differed from the commit.
	Changed bool
}

// ReadBuild returns the Build of this program.
func ReadBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	if commit != "" {
		info.Settings = append(info.Settings, debug.BuildSetting{Key: "vcs.revision", Value: commit},
			debug.BuildSetting{Key: "vcs.time", Value: date}, debug.BuildSetting{Key: "vcs.modified", Value: changed})
	}
	return buildOf(info, release)
}

func buildOf(info *debug.BuildInfo, release string) Build {
	b := Build{Version: unknown, Commit: unknown, Date: unknown, Go: runtime.Version()}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	if release != "" {
		b.Version = release
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Changed = s.Value == "true"
		}
	}
	return b
}

// String returns the --version text after the program's name.
func (b Build) String() string {
	commit := b.Commit
	if b.Changed {
		commit += " with changes"
	}
	return strings.Join([]string{b.Version, "commit " + commit, "of " + b.Date, b.Go}, ", ")
}

// addVersion gives a program the flag --version and a hidden command that prints the same, for those
// who try that first.
func addVersion(root *cobra.Command) {
	version := ReadBuild().String()
	root.Version = version
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.Flags().Bool("version", false, fmt.Sprintf("Prints the version of %s, and exits", root.Name()))
	if !root.HasSubCommands() {
		root.CompletionOptions.DisableDefaultCmd = true // or it would come with the first command
	}
	root.AddCommand(&cobra.Command{
		Use: "version", Hidden: true, Args: Arguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), root.Name(), version)
			return err
		},
	})
}
