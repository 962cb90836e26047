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

// maxModule is the maximum size of module.ts in bytes.
const maxModule = 4 << 20

// hasFiles reports whether dir contains all of the named files. Links count even if they are
// broken.
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

// hasProgram reports whether dir contains a complete program.
func hasProgram(dir string) bool { return hasFiles(dir, manifestFile, moduleFile) }

// isProgram reports whether dir contains at least a part of a program.
func isProgram(dir string) bool { return hasFiles(dir, manifestFile) || hasFiles(dir, moduleFile) }

// loadProgram loads a skill without instructions.
func loadProgram(dir string) (*Skill, []Problem) {
	m, problems := readProgram(dir)
	if hasError(problems) {
		return nil, problems
	}
	return &Skill{Name: m.Name, Description: m.Description, Dir: dir, File: filepath.Join(dir, manifestFile), Source: "path", Manifest: m}, problems
}

// addProgram adds the program to a skill with instructions. If the program has errors, it is left
// out and its errors become warnings.
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

// readProgram reads the manifest of a program and checks that its module can be read.
func readProgram(dir string) (*Manifest, []Problem) {
	m, problems := readManifest(dir)
	if !hasFiles(dir, moduleFile) {
		return m, append(problems, moduleMissing(dir)...)
	}
	_, found := readFile(dir, moduleFile, maxModule, "")
	return m, append(problems, found...)
}

func moduleMissing(dir string) []Problem {
	return problem(filepath.Join(dir, moduleFile), RuleModuleMissing, "is missing; it is the program that manifest.json describes")
}

// Docs returns the content of docs.md, the documentation for people, or "" if the skill has none.
// The error names the file.
func (s *Skill) Docs() (string, error) {
	if !hasFiles(s.Dir, docsFile) {
		return "", nil
	}
	text, problems := readText(s.Dir, docsFile, MaxFile)
	if len(problems) > 0 {
		return "", problems[0]
	}
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")), nil
}

// programText returns the text that a model gets for a program: a fixed introduction and the
// author's documentation.
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

// validateProgram checks a program against all rules.
func validateProgram(dir string) []Problem {
	m, problems := readManifest(dir)
	problems = append(problems, checkNames(dir, m)...)
	problems = append(problems, checkConfigSchema(dir)...)
	problems = append(problems, checkWASM(dir, m)...)

	var asking []Problem // first placeholder of each file
	for _, name := range []string{docsFile, moduleFile} {
		if !hasFiles(dir, name) {
			if name == moduleFile {
				problems = append(problems, moduleMissing(dir)...)
			}
			continue
		}
		text, found := readText(dir, name, maxModule)
		if problems = append(problems, found...); len(found) > 0 {
			continue
		}

		file := filepath.Join(dir, name)
		problems = append(problems, scanSecrets(file, text)...)
		if name == moduleFile && !executeExport.Match(text) {
			problems = append(problems, warning(file, RuleExecute, "does not seem to export execute; write: export async function execute(args, host) {…}"))
		}
		if line, ok := hasPlaceholder(text); ok {
			asking = append(asking, warning(file, RulePlaceholder, "asks for a secret, and requiredBindings of the manifest is empty; declare the binding there"))
			asking[len(asking)-1].Line = line
		}
	}
	if m != nil && len(m.RequiredBindings) == 0 {
		problems = append(problems, asking...)
	}

	return inOrder(problems)
}

// readText reads a file that must be UTF-8.
func readText(dir, name string, limit int64) ([]byte, []Problem) {
	text, problems := readFile(dir, name, limit, "")
	if len(problems) == 0 && !utf8.Valid(text) {
		problems = problem(filepath.Join(dir, name), RuleEncoding, "is not UTF-8 text; save it as UTF-8")
	}
	return text, problems
}

// CheckExports checks the exports of a compiled module against the manifest in dir. The module must
// export every declared tool handler and lifecycle hook.
func CheckExports(dir string, exports []string) []Problem {
	file := filepath.Join(dir, manifestFile)
	source, problems := readFile(dir, manifestFile, MaxFile, "")
	if len(problems) > 0 {
		return problems
	}
	v, _ := parseJSON(file, source) // Validate reports syntax errors
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

// checkNames checks that folder, manifest and SKILL.md have the same name.
func checkNames(dir string, m *Manifest) (problems []Problem) {
	base := filepath.Base(dir)
	if !slug.MatchString(base) {
		problems = problem(dir, RuleSlug, "the folder's name %q is no slug; write small letters, digits and hyphens, and begin with a letter", base)
	}
	if m == nil {
		return problems
	}

	warn := func(format string, args ...any) {
		p := warning(filepath.Join(dir, manifestFile), RuleNameManifest, format, args...)
		p.Field = "name"
		problems = append(problems, p)
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

// checkConfigSchema checks the schema of a program's settings, if there is one.
func checkConfigSchema(dir string) []Problem {
	if !hasFiles(dir, configFile) {
		return nil
	}
	file := filepath.Join(dir, configFile)
	source, problems := readFile(dir, configFile, MaxFile, "")
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

// checkWASM checks that the WebAssembly modules of a program exist and match their audit hashes.
func checkWASM(dir string, m *Manifest) (problems []Problem) {
	if m == nil {
		return nil
	}
	file := filepath.Join(dir, manifestFile)
	if _, err := (&Skill{Name: m.Name, Dir: dir, Manifest: m}).WASMCode(); err != nil {
		return []Problem{{File: file, Field: "wasm", Rule: RuleWASM, Message: err.Error()}}
	}
	for i, w := range m.WASM {
		if w.AuditHash == nil {
			p := warning(file, RuleWASMAudit, "is null, so that any bytes are taken for the module; write sha256: and the SHA-256 of its file")
			p.Field = fmt.Sprintf("wasm[%d].auditHash", i)
			problems = append(problems, p)
		}
	}
	return problems
}

// executeExport matches a module that appears to export execute. Only running the module is
// conclusive.
var executeExport = regexp.MustCompile(`(?m)export\s+(async\s+)?function\s+execute\b|exports\.execute\s*=|export\s+(const|let|var)\s+execute\b|export\s*\{[^}]*\bexecute\b[^}]*\}`)

// secretShapes are patterns of well-known secrets.
var secretShapes = []struct {
	what  string
	shape *regexp.Regexp
}{
	{"a key of a model's provider (sk-…)", regexp.MustCompile(`sk-[a-zA-Z0-9]{20,}`)},
	{"an access key of AWS (AKIA…)", regexp.MustCompile(`AKIA[0-9A-Z]{16}`)},
	{"a token of GitHub (ghp_…)", regexp.MustCompile(`ghp_[a-zA-Z0-9]{36}`)},
	{"a token of Slack (xox…)", regexp.MustCompile(`xox[bpsa]-[a-zA-Z0-9-]+`)},
}

var (
	// secretWord and quotedValue together match a line that seems to set a secret.
	secretWord  = regexp.MustCompile(`(?i)secret|api.?key|token|password`)
	quotedValue = regexp.MustCompile(`[=:]\s*["'][^"']+["']`)
	// placeholder matches a placeholder, which is replaced with the secret at run time.
	placeholder = regexp.MustCompile(`__OSL_SECRET\[.+?\]__`)
)

// scanSecrets reports possible secrets in a published file. A secret of a known format is an error.
// A quoted value after a word like "password" is a warning. Messages never contain the secret.
func scanSecrets(file string, text []byte) []Problem {
	r := &report{file: file}
	for i, line := range strings.Split(string(text), "\n") {
		at := value{line: i + 1}
		for _, s := range secretShapes {
			if s.shape.MatchString(line) {
				r.add(at, "", RuleSecret, false, "holds what looks like %s; remove it, have it revoked, and let the program ask for a binding", s.what)
			}
		}
		if secretWord.MatchString(line) && strings.Contains(line, "=") && quotedValue.MatchString(line) && !placeholder.MatchString(line) {
			r.add(at, "", RuleSecretLike, true, "seems to set a secret; if it is one, declare a binding and write __OSL_SECRET[its name]__")
		}
	}

	return r.problems
}

// hasPlaceholder reports whether text contains a secret placeholder, and the line of the first one.
func hasPlaceholder(text []byte) (line int, ok bool) {
	at := placeholder.FindIndex(text)
	if at == nil {
		return 0, false
	}
	return strings.Count(string(text[:at[0]]), "\n") + 1, true
}
