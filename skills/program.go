package skills

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxModule is the largest module.ts that is accepted, in bytes.
const maxModule = 4 << 20

// hasFiles says whether a directory has all of some files, or links of their names.
func hasFiles(dir string, names ...string) bool {
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

func hasInstructions(dir string) bool {
	return hasFiles(dir, fileNames[0]) || hasFiles(dir, fileNames[1])
}

// hasProgram says whether a directory has a program, whole.
func hasProgram(dir string) bool { return hasFiles(dir, manifestFile, moduleFile) }

// isProgram says whether a directory without a SKILL.md was meant as a program.
func isProgram(dir string) bool { return hasFiles(dir, manifestFile) || hasFiles(dir, moduleFile) }

// loadProgram is load for a directory with a program alone.
func loadProgram(dir string) (*Skill, []Problem) {
	m, problems := readProgram(dir)
	if hasError(problems) {
		return nil, problems
	}
	return &Skill{Name: m.Name, Description: m.Description, Dir: dir, File: filepath.Join(dir, manifestFile), Source: "path", Manifest: m}, problems
}

// addProgram adds the program that stands beside the instructions of a skill. One with errors leaves the
// instructions what they are.
func (s *Skill) addProgram() []Problem {
	m, problems := readProgram(s.Dir)
	if !hasError(problems) {
		s.Manifest = m
		return problems
	}

	for i, p := range problems {
		if !p.Warning {
			problems[i].Message = fmt.Sprintf("of the program %s (%s), so that only the instructions beside it are loaded", p.Message, p.Rule)
			problems[i].Rule, problems[i].Warning = RuleProgram, true
		}
	}
	return problems
}

// readProgram reads the manifest of a program, and sees that there is one to be run.
func readProgram(dir string) (*Manifest, []Problem) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, unreadable(dir, err)
	}
	defer root.Close()

	m, problems := readManifest(root, dir)
	if _, err := root.Lstat(moduleFile); err != nil {
		problems = append(problems, Problem{File: filepath.Join(dir, moduleFile), Rule: RuleModuleMissing, Message: "is missing; it is the program that manifest.json describes"})
	} else if info, err := root.Stat(moduleFile); err != nil || !info.Mode().IsRegular() || info.Size() > maxModule {
		_, found := readFile(root, dir, moduleFile, maxModule, "")
		problems = append(problems, found...)
	}
	return m, problems
}

// Docs is the docs.md of a skill, for people (OSL-34); "" if it has none. The error names the file.
func (s *Skill) Docs() (string, error) {
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return "", err
	}
	defer root.Close()

	if _, err := root.Lstat(docsFile); err != nil {
		return "", nil //nolint:nilerr // it need not be there
	}
	text, problems := readFile(root, s.Dir, docsFile, MaxFile, "")
	if len(problems) > 0 {
		return "", problemError(problems[0])
	}
	if !utf8.Valid(text) {
		return "", fmt.Errorf("%s is not UTF-8 text; save it as UTF-8", filepath.Join(s.Dir, docsFile))
	}
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")), nil
}

// problemError is a problem as an error.
type problemError Problem

func (p problemError) Error() string { return Problem(p).String() }

// programText is what a model is told of a program: that it is one, and what its author says of it.
func (s *Skill) programText() (string, error) {
	docs, err := s.Docs()
	if err != nil {
		return "", err
	}
	if docs == "" {
		docs = s.Description
	}
	return "This skill is a program that its owner or a job starts, or you with those of your tools whose names begin with " + s.Name + "__. There is nothing in it for you to follow; what its author says of it:\n\n" + docs, nil
}

// validateProgram holds a program to all rules (OSL-05).
func validateProgram(dir string) []Problem {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return unreadable(dir, err)
	}
	defer root.Close()

	m, problems := readManifest(root, dir)
	problems = append(problems, checkNames(dir, m)...)
	problems = append(problems, checkConfigSchema(root, dir)...)
	problems = append(problems, checkWASM(dir, m)...)

	var asking []Problem // where a placeholder stands first
	for _, name := range []string{docsFile, moduleFile} {
		text, found, ok := readPart(root, dir, name)
		problems = append(problems, found...)
		if !ok {
			continue
		}

		file := filepath.Join(dir, name)
		problems = append(problems, scanSecrets(file, text)...)
		if name == moduleFile && !exportsExecute(text) {
			problems = append(problems, Problem{File: file, Rule: RuleExecute, Warning: true, Message: "does not seem to export execute; write: export async function execute(args, host) {…}"})
		}
		if line, ok := hasPlaceholder(text); ok {
			asking = append(asking, Problem{File: file, Line: line, Rule: RulePlaceholder, Warning: true, Message: "asks for a secret, and requiredBindings of the manifest is empty; declare the binding there"})
		}
	}
	if m != nil && len(m.RequiredBindings) == 0 {
		problems = append(problems, asking...)
	}

	return inOrder(problems)
}

// CheckExports compares the exports of a compiled module with the manifest in its folder. Each handler of a
// tool and each lifecycle hook that the manifest declares must be exported (OSL-05).
func CheckExports(dir string, exports []string) []Problem {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return unreadable(dir, err)
	}
	defer root.Close()

	file := filepath.Join(dir, manifestFile)
	source, problems := readFile(root, dir, manifestFile, MaxFile, "")
	if len(problems) > 0 {
		return problems
	}
	v, _ := parseJSON(file, source) // Validate reports the syntax
	r := &report{file: file}
	o := &object{report: r, value: v}
	for _, one := range o.objects("tools") {
		if handler, _ := one.value.lookup("handlerExport"); handler.kind == kindText && !slices.Contains(exports, handler.text) {
			one.fail("handlerExport", RuleExport, "%q is not an export of %s; export a function of this name%s", handler.text, moduleFile, near(handler.text, exports))
		}
	}

	hooks, _ := v.lookup("lifecycleHooks")
	var declared []string
	for i, item := range hooks.items {
		name := hookName(item)
		if name.kind != kindText {
			continue
		}
		declared = append(declared, name.text)
		if slices.Contains(lifecycleHooks, name.text) && !slices.Contains(exports, name.text) {
			r.add(item, fmt.Sprintf("lifecycleHooks[%d]", i), RuleExport, false, "%q is not an export of %s; export a function of this name", name.text, moduleFile)
		}
	}
	for _, name := range lifecycleHooks {
		if slices.Contains(exports, name) && !slices.Contains(declared, name) {
			o.warn("lifecycleHooks", RuleHookUndeclared, "does not name %s, which %s exports; add it, or the hook is never called", name, moduleFile)
		}
	}
	return inOrder(r.problems)
}

// readPart reads a text of a program. module.ts has to be there.
func readPart(root *os.Root, dir, name string) (text []byte, problems []Problem, ok bool) {
	file := filepath.Join(dir, name)
	if _, err := root.Lstat(name); err != nil {
		if name == moduleFile {
			problems = []Problem{{File: file, Rule: RuleModuleMissing, Message: "is missing; it is the program that manifest.json describes"}}
		}
		return nil, problems, false
	}

	text, problems = readFile(root, dir, name, maxModule, "")
	if len(problems) == 0 && !utf8.Valid(text) {
		problems = []Problem{{File: file, Rule: RuleEncoding, Message: "is not UTF-8 text; save it as UTF-8"}}
	}
	return text, problems, len(problems) == 0
}

// checkNames compares what folder, manifest and SKILL.md call a skill.
func checkNames(dir string, m *Manifest) (problems []Problem) {
	file, base := filepath.Join(dir, manifestFile), filepath.Base(dir)
	if !slug.MatchString(base) {
		problems = append(problems, Problem{File: dir, Rule: RuleSlug, Message: fmt.Sprintf("the folder's name %q is no slug; write small letters, digits and hyphens, and begin with a letter", base)})
	}
	if m == nil {
		return problems
	}

	warn := func(format string, args ...any) {
		problems = append(problems, Problem{File: file, Field: "name", Rule: RuleNameManifest, Warning: true, Message: fmt.Sprintf(format, args...)})
	}
	if m.Name != base {
		warn("is %q, and its folder is %q; call both the same", m.Name, base)
	}
	if !hasInstructions(dir) {
		return problems
	}
	if s, _ := load(dir, false); s != nil && s.Name != m.Name {
		warn("is %q, and its SKILL.md says %q, which counts; call both the same", m.Name, s.Name)
	}
	return problems
}

// checkConfigSchema checks the schema of a program's settings, which need not be there (OSL-11).
func checkConfigSchema(root *os.Root, dir string) []Problem {
	if _, err := root.Lstat(configFile); err != nil {
		return nil
	}

	file := filepath.Join(dir, configFile)
	source, problems := readFile(root, dir, configFile, MaxFile, "")
	if len(problems) > 0 {
		return problems
	}
	v, problems := parseJSON(file, source)
	if v.kind == "" {
		return problems
	}

	r := &report{file: file, problems: problems}
	if v.kind != kindObject {
		r.add(v, "", RuleSchemaRoot, false, `must be an object with "type": "object"; its properties are the settings`)
		return r.problems
	}
	r.checkSchema(v, "", "object")
	return r.problems
}

// checkWASM sees that the WebAssembly modules of a program are there, and are those that were audited (OSL-33).
func checkWASM(dir string, m *Manifest) []Problem {
	if m == nil {
		return nil
	}
	if _, err := (&Skill{Name: m.Name, Dir: dir, Manifest: m}).WASMCode(); err != nil {
		return []Problem{{File: filepath.Join(dir, manifestFile), Field: "wasm", Rule: RuleWASM, Message: err.Error()}}
	}

	var problems []Problem
	for i, w := range m.WASM {
		if w.AuditHash == nil {
			problems = append(problems, Problem{File: filepath.Join(dir, manifestFile), Field: fmt.Sprintf("wasm[%d].auditHash", i), Rule: RuleWASMAudit, Warning: true, Message: "is null, so that any bytes are taken for the module; write sha256: and the SHA-256 of its file"})
		}
	}
	return problems
}

// executeExport are the ways in which a module exports execute.
var executeExport = regexp.MustCompile(`(?m)export\s+(async\s+)?function\s+execute\b|exports\.execute\s*=|export\s+(const|let|var)\s+execute\b|export\s*\{[^}]*\bexecute\b[^}]*\}`)

// exportsExecute says whether a module seems to export execute. Running it tells for sure.
func exportsExecute(source []byte) bool { return executeExport.Match(source) }
