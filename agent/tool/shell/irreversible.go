package shell

import (
	"errors"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"rouse/agent/tool"
	"rouse/agent/tool/file"
)

// interpreters are programs that execute instructions from their arguments or files.
var interpreters = strings.Fields(`awk bash bun busybox cargo cmd cmd.exe cmake crontab csh dash deno docker doas ed emacs env expect fish gawk gdb go irb java jshell julia ksh lua make mawk
	nice node nodejs nohup npm npx osascript parallel perl php podman powershell powershell.exe pwsh pnpm python python2 python3 R Rscript ruby rundll32 screen sed setsid sh socat sqlite3 ssh
	strace su sudo systemd-run tclsh time timeout tmux uv vi vim watch wish xargs yarn zsh`)

// Interprets reports whether a program executes instructions from its arguments. It ignores version
// numbers in the name.
func Interprets(program string) bool {
	name := strings.ToLower(strings.TrimSuffix(path.Base(strings.ReplaceAll(program, `\`, "/")), ".exe"))
	return slices.Contains(interpreters, name) || slices.Contains(interpreters, strings.TrimRight(name, "0123456789.-"))
}

// editors are interpreters that only write to their output, unless an option or their script tells
// them otherwise.
var editors = []string{"sed", "awk", "gawk", "mawk"}

// removers are programs that remove, empty or rewrite the files in their arguments.
var removers = []string{"rm", "rmdir", "unlink", "shred", "truncate", "srm", "wipe", "patch", "rsync", "ex", "sponge"}

// compressors replace a file unless an option prevents it.
var compressors = []string{"gzip", "gunzip", "bzip2", "bunzip2", "xz", "unxz", "lzma", "unlzma", "compress", "uncompress"}

// lossyGit lists the git commands that can discard changes.
var lossyGit = []string{"clean", "reset", "checkout", "restore", "rm", "switch", "stash", "gc", "prune", "worktree", "merge", "rebase", "pull", "am", "apply"}

// findsAndActs lists the options with which find removes files, writes files or starts programs.
var findsAndActs = []string{"-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprint0", "-fprintf", "-fls"}

// irreversible reports whether a command may remove or overwrite files without a way to undo it. It
// decides by the words of the command. Unknown words and interpreters with instructions from the
// model count as irreversible.
func (f *family) irreversible(o resolvedCommand) bool {
	v := lossVisitor{roots: f.roots, depth: maxNested}
	if o.argv == nil {
		return v.script(o.tree)
	}

	if predictable[o.argv[0]] != nil {
		plan, why := predict(f.roots, o.argv)
		if why == "" {
			err := file.CheckPlan(f.roots, plan)
			var bad *tool.Refusal
			if err == nil || errors.As(err, &bad) && bad.Kind == tool.KindNotFound {
				return false // undo can restore it, or the file does not exist
			}
		}
	}

	// If the grant contains no wildcards, the owner wrote all arguments of the interpreter.
	v.owners = o.grant != nil && !slices.ContainsFunc(o.grant.Argv, func(element string) bool { return strings.ContainsAny(element, "*?[") })
	return v.call(knownWords(o.argv))
}

// word is a word of a command. known reports whether a shell would leave it unchanged.
type word struct {
	text  string
	known bool
}

func wordOf(w *syntax.Word) word { return word{unquoted(knownParts(w.Parts)), needsShell(w) == ""} }

func wordsOf(args []*syntax.Word) []word {
	out := make([]word, len(args))
	for i, w := range args {
		out[i] = wordOf(w)
	}
	return out
}

func knownWords(argv []string) []word {
	out := make([]word, len(argv))
	for i, a := range argv {
		out[i] = word{a, true}
	}
	return out
}

// lossVisitor checks whether a command loses data.
type lossVisitor struct {
	roots  *tool.Roots
	depth  int  // remaining depth of scripts within scripts
	moved  bool // the script changes its folder, so relative paths are unknown
	owners bool // the owner wrote the instructions of interpreters
}

// script checks each command and redirection of a script.
func (v lossVisitor) script(tree *syntax.File) (loses bool) {
	v.moved = v.moved || calls(tree, "cd", "pushd", "popd")
	syntax.Walk(tree, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			loses = loses || v.call(wordsOf(n.Args))
		case *syntax.Redirect:
			empties := n.Op == syntax.RdrOut || n.Op == syntax.RdrClob || n.Op == syntax.RdrAll
			loses = loses || empties && n.Word != nil && v.overwrites(wordOf(n.Word))
		}
		return !loses
	})
	return loses
}

// overwrites reports whether writing to a path may replace a file.
func (v lossVisitor) overwrites(to word) bool {
	switch {
	case strings.HasPrefix(to.text, "/dev/"):
		return false
	case !to.known, v.moved:
		return true
	}
	return exists(v.roots, to.text)
}

// call checks one program with its arguments.
func (v lossVisitor) call(words []word) bool {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.text
	}

	behind := wrapperWords(texts)
	if slices.ContainsFunc(words[:behind], func(w word) bool { return !w.known }) { // it could be the program
		return true
	}
	if words = words[behind:]; len(words) == 0 {
		return false
	}
	if !words[0].known { // the program is known only at run time
		return true
	}

	name, args := path.Base(words[0].text), words[1:]
	switch {
	case slices.Contains(removers, name):
		return true
	case slices.Contains([]string{"mv", "cp", "install", "ln"}, name):
		return v.transfer(name, args)
	case slices.Contains(compressors, name):
		return !hasOption(args, "ckltV", "--stdout", "--to-stdout", "--keep", "--list", "--test", "--help", "--version")
	case slices.Contains([]string{"eval", "source", ".", "trap"}, name):
		return true
	case slices.Contains(editors, name):
		return edits(args)
	case Interprets(name):
		return v.interpreter(args)
	}

	return v.byOption(name, args)
}

// byOption checks programs that overwrite files only with certain options.
func (v lossVisitor) byOption(name string, args []word) bool {
	switch name {
	case "tee":
		return !hasOption(args, "a", "--append") && slices.ContainsFunc(args, func(a word) bool { return !strings.HasPrefix(a.text, "-") && v.overwrites(a) })
	case "dd":
		return slices.ContainsFunc(args, func(a word) bool {
			to, ok := strings.CutPrefix(a.text, "of=")
			return ok && v.overwrites(word{to, a.known})
		})
	case "find":
		return slices.ContainsFunc(args, func(a word) bool { return !a.known || slices.Contains(findsAndActs, a.text) })
	case "sort":
		return hasOption(args, "o", "--output")
	case "zip":
		return hasOption(args, "m", "--move")
	case "unzip", "7z", "cpio", "ar":
		return hasOption(args, "oyud", "--unconditional") || name == "7z"
	case "zstd", "unzstd":
		return hasOption(args, "", "--rm") || hasOption(args, "f", "--force")
	case "tar":
		extracts := hasOption(args, "x", "--extract", "--get") || len(args) > 0 && !strings.HasPrefix(args[0].text, "-") && strings.Contains(args[0].text, "x")
		return extracts && !hasOption(args, "k", "--keep-old-files", "--skip-old-files") || hasOption(args, "", "--remove-files", "--delete", "--recursive-unlink")
	case "git":
		return len(args) > 0 && (strings.HasPrefix(args[0].text, "-") || !args[0].known || slices.Contains(lossyGit, args[0].text))
	case "grep", "egrep", "fgrep", "rg", "ls": // their -o does not name a file
	default:
		return v.writesOutput(args)
	}

	return false
}

// outputOptions are the options with which most programs name an output file.
var outputOptions = []string{"-o", "-O", "-out", "--out", "--output", "--output-file", "--output-document"}

// writesOutput reports whether an option makes a program overwrite an existing file.
func (v lossVisitor) writesOutput(args []word) bool {
	for i, a := range args {
		option, value, has := strings.Cut(a.text, "=")
		switch {
		case !slices.Contains(outputOptions, option):
		case has && v.overwrites(word{value, a.known}), !has && i+1 < len(args) && v.overwrites(args[i+1]):
			return true
		}
	}
	return false
}

// transfer reports whether mv, cp, install or ln may overwrite a file.
func (v lossVisitor) transfer(name string, args []word) bool {
	var paths []word
	for _, a := range args {
		switch {
		case !a.known, strings.HasPrefix(a.text, "-t"), strings.HasPrefix(a.text, "--target"):
			return true
		case name == "ln" && !hasOption(args, "f", "--force"), strings.HasPrefix(a.text, "-n"), a.text == "--no-clobber":
			return false // it does not overwrite files
		case !strings.HasPrefix(a.text, "-"):
			paths = append(paths, a)
		}
	}
	if len(paths) < 2 {
		return false
	}

	to := paths[len(paths)-1]
	if v.moved || !isFolder(v.roots, to.text) {
		return v.overwrites(to)
	}

	// In a folder, each source keeps its name.
	return slices.ContainsFunc(paths[:len(paths)-1], func(p word) bool {
		return v.overwrites(word{filepath.Join(to.text, filepath.Base(p.text)), true})
	})
}

// edits reports whether sed or awk write to files or start programs.
func edits(args []word) bool {
	return slices.ContainsFunc(args, func(a word) bool {
		option := strings.HasPrefix(a.text, "-")
		return !a.known || option && (hasOption([]word{a}, "if", "--in-place", "--file")) || !option && acts.MatchString(a.text)
	})
}

// acts matches text that looks like a sed or awk script that writes a file or starts a program.
var acts = regexp.MustCompile(`>|\||system|(^|[;{}$/,#! 0-9])[gp0-9]*[weW]( |$)`)

// interpreter checks the script of a shell. Other interpreters are assumed to lose data.
func (v lossVisitor) interpreter(args []word) bool {
	if v.owners {
		return false
	}

	for i, a := range args {
		// bash -o pipefail -ec 'script'
		if !strings.HasPrefix(a.text, "-") || strings.HasPrefix(a.text, "--") || !strings.Contains(a.text, "c") || i+1 >= len(args) {
			continue
		}

		text := args[i+1]
		tree := parseScript(text.text)
		if tree == nil || !text.known || v.depth == 0 {
			return true
		}
		v.depth--
		return v.script(tree)
	}

	return len(args) != 1 || !slices.Contains([]string{"--version", "-V", "--help"}, args[0].text)
}

// hasOption reports whether args contain an option: a long option, or a letter alone or combined
// with others.
func hasOption(args []word, letters string, long ...string) bool {
	return slices.ContainsFunc(args, func(a word) bool {
		name, _, _ := strings.Cut(a.text, "=")
		if strings.HasPrefix(a.text, "--") {
			return slices.Contains(long, name)
		}
		return strings.HasPrefix(a.text, "-") && letters != "" && strings.ContainsAny(a.text[1:], letters)
	})
}

// calls reports whether a script plainly calls one of the programs.
func calls(tree *syntax.File, programs ...string) (found bool) {
	syntax.Walk(tree, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			found = found || slices.Contains(programs, filepath.Base(staticWord(call.Args[0])))
		}
		return !found
	})
	return found
}
