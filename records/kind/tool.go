package kind

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"
)

// maxTool limits a tool in bytes. A longer one is cut, and its end becomes a hash.
const maxTool = 256

// An interpreter is a program whose arguments say what it runs.
type interpreter struct {
	// valued are options whose value is the next argument.
	valued []string
	// named is the option whose value names what it runs, such as a module. text is the option
	// whose value is source text. Each is empty if there is no such option.
	named, text string
	shell       bool // the source text is shell text
}

var (
	shell  = interpreter{valued: []string{"-o", "-O", "+o", "+O"}, text: "-c", shell: true}
	python = interpreter{valued: []string{"-W", "-X", "--check-hash-based-pycs"}, named: "-m", text: "-c"}
	node   = interpreter{valued: []string{"-r", "--require", "--import", "--loader", "--conditions", "-C"}, text: "-e"}
	java   = interpreter{
		valued: []string{
			"-cp", "-classpath", "--class-path", "-p", "--module-path", "--upgrade-module-path", "--add-modules",
			"--add-exports", "--add-opens", "--add-reads", "--patch-module", "--limit-modules", "--source",
		},
		named: "-jar",
	}
	interpreters = map[string]interpreter{
		"sh": shell, "bash": shell, "dash": shell, "ash": shell, "zsh": shell, "ksh": shell,
		"python": python, "pypy": python,
		"node": node, "nodejs": node,
		"java": java,
		"perl": {valued: []string{"-I"}, text: "-e"},
		"ruby": {valued: []string{"-I", "-r", "-C", "-E"}, text: "-e"},
		"php":  {valued: []string{"-c", "-d"}, named: "-f", text: "-r"},
		"lua":  {valued: []string{"-l"}, text: "-e"},
	}
)

// ToolOf returns the tool that a command runs; commands with the same tool are similar. The tool is
// the program or, for an interpreter, the program with the script, module or class that it runs.
// For a shell with -c it includes the tool of the first command in the text.
func ToolOf(args []string) string {
	tool := strings.Join(toolOf(args, 0), " ")
	if len(tool) > maxTool {
		sum := sha256.Sum256([]byte(tool))
		tool = tool[:maxTool-2*len(sum)] + hex.EncodeToString(sum[:])
	}
	return tool
}

// maxNested limits how many nested programs are examined.
const maxNested = 4

func toolOf(args []string, nested int) []string {
	for len(args) > 1 && path.Base(args[0]) == "env" {
		args = afterAssignments(args[1:])
	}
	if len(args) == 0 {
		return nil
	}
	program := args[0]
	in, known := interpreters[strings.TrimRight(path.Base(program), "0123456789.")]
	if !known || nested == maxNested {
		return []string{program}
	}
	for i := 1; i < len(args); i++ {
		arg := args[i]
		var value []string // at most one
		if i+1 < len(args) {
			value = args[i+1 : i+2]
		}
		switch {
		case in.named != "" && arg == in.named:
			return append([]string{program, arg}, value...)
		case in.runsText(arg) && in.shell:
			return append([]string{program, "-c"}, toolOf(firstCommand(strings.Join(value, "")), nested+1)...)
		case in.runsText(arg):
			return []string{program, arg}
		case slices.Contains(in.valued, arg):
			i++
		case !strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "+"):
			return []string{program, arg}
		}
	}
	return []string{program}
}

// runsText reports whether the argument after arg is source text. Shells also accept -ec.
func (in interpreter) runsText(arg string) bool {
	if in.shell {
		return strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.HasSuffix(arg, "c")
	}
	return in.text != "" && arg == in.text
}

// afterAssignments drops the options and variable assignments at the beginning of a command.
func afterAssignments(words []string) []string {
	for len(words) > 0 && (strings.HasPrefix(words[0], "-") || strings.Contains(words[0], "=")) {
		words = words[1:]
	}
	return words
}

// prepare has shell commands that only prepare for another command.
var prepare = []string{"set", "cd", "source", ".", "export", "umask", "ulimit", "mkdir", "trap", "unset", "pushd", "true", ":"}

// firstCommand returns the words, without quotes, of the first command in text that does more than
// prepare for others. If there is none, it returns the last command. It knows enough of the shell's
// grammar to return the same for texts with the same beginning.
func firstCommand(text string) []string {
	const maxText = 4 << 10 // the interesting command comes earlier
	text = text[:min(len(text), maxText)]
	var words []string
	for _, command := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(";&|\n(){}", r) }) {
		fields := afterAssignments(strings.Fields(command))
		for len(fields) > 1 && (fields[0] == "exec" || fields[0] == "command" || fields[0] == "time") {
			fields = afterAssignments(fields[1:])
		}
		if len(fields) == 0 {
			continue
		}
		words = words[:0]
		for _, f := range fields {
			words = append(words, strings.Trim(f, `"'`))
		}
		if !slices.Contains(prepare, words[0]) {
			return words
		}
	}
	return words
}
