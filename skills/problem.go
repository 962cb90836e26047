package skills

import (
	"fmt"
	"slices"
	"strings"
)

// Rule identifies a requirement for skills.
type Rule string

// The rules of the AgentSkills standard.
const (
	RulePathMissing         Rule = "path-missing"
	RuleNotDirectory        Rule = "not-a-directory"
	RuleFileMissing         Rule = "file-missing"
	RuleFrontmatterMissing  Rule = "frontmatter-missing"
	RuleFrontmatterOpen     Rule = "frontmatter-open"
	RuleFrontmatterYAML     Rule = "frontmatter-yaml"
	RuleFrontmatterMapping  Rule = "frontmatter-mapping"
	RuleFieldUnknown        Rule = "field-unknown"
	RuleFieldTwice          Rule = "field-twice"
	RuleNameMissing         Rule = "name-missing"
	RuleNameLength          Rule = "name-length"
	RuleNameCase            Rule = "name-case"
	RuleNameHyphen          Rule = "name-hyphen"
	RuleNameCharacters      Rule = "name-characters"
	RuleNameDirectory       Rule = "name-directory"
	RuleDescriptionMissing  Rule = "description-missing"
	RuleDescriptionLength   Rule = "description-length"
	RuleCompatibilityType   Rule = "compatibility-type"
	RuleCompatibilityLength Rule = "compatibility-length"
	RuleYAMLStyle           Rule = "yaml-style"
)

// The rules of this package beyond the standard.
const (
	RuleEncoding    Rule = "encoding"     // a text is not UTF-8
	RuleUnreadable  Rule = "unreadable"   // operating system error
	RuleTooLarge    Rule = "too-large"    // larger than the limit
	RuleNotRegular  Rule = "not-regular"  // SKILL.md is a folder, pipe or device
	RuleLinkOutside Rule = "link-outside" // a link leads out of the skill or the search root
	// RuleEntry reports an entry that prevents a skill from being installed or trusted.
	RuleEntry Rule = "entry"
	// RuleShadowed reports a skill that is overridden by a skill of the same name.
	RuleShadowed  Rule = "shadowed"
	RuleUntrusted Rule = "untrusted" // the root is not trusted
	RuleChanged   Rule = "changed"   // changed since it was trusted
	RuleLimit     Rule = "limit"     // the search did not cover everything
)

// The rules of executable skills. A violation is an error.
const (
	RuleManifestMissing Rule = "manifest-missing"
	RuleModuleMissing   Rule = "module-missing"
	RuleSyntax          Rule = "syntax" // module.ts or one of its imports does not compile
	RuleJSON            Rule = "json"
	RuleFieldMissing    Rule = "field-missing"
	RuleFieldType       Rule = "field-type"
	RuleFieldValue      Rule = "field-value"
	RuleSlug            Rule = "slug"
	RuleVersion         Rule = "semver"
	RuleSchemaVersion   Rule = "schema-version"
	RuleSchema          Rule = "schema"
	RuleSchemaRoot      Rule = "schema-root"
	// RuleAgenticConfig reports that agenticConfig is enabled although the mode is not agentic, or
	// the reverse.
	RuleAgenticConfig Rule = "agentic-config"
	// RuleWorkspace reports requiresWorkspace without workspaceSupport: required.
	RuleWorkspace Rule = "workspace-required"
	RuleNameTwice Rule = "name-twice"
	RuleSecret    Rule = "secret"
	// RuleWASM reports a WebAssembly module that is missing or has the wrong hash.
	RuleWASM Rule = "wasm"
	// RuleExport reports an export that the manifest names but the module lacks.
	RuleExport        Rule = "export-missing"
	RuleIndexMismatch Rule = "index-mismatch" // the index contradicts the manifest
	// RuleIndexFolder reports an index entry with a folder that is missing or outside of the
	// repository.
	RuleIndexFolder Rule = "index-folder"
)

// More rules of executable skills. A violation is a warning.
const (
	RuleCompatibility    Rule = "compatibility-unknown"
	RuleFeature          Rule = "compatibility-missing" // a feature that this host lacks
	RuleBridgeTools      Rule = "bridge-system-tools"
	RuleBridgePlatforms  Rule = "bridge-platforms"
	RuleWorkspaceVersion Rule = "workspace-version"
	RuleStepLimit        Rule = "step-limit"
	RuleAgenticSupport   Rule = "agentic-support"
	RuleDeclarative      Rule = "declarative"
	RuleLongRunning      Rule = "long-running-workspace"
	RuleReference        Rule = "reference"
	// RuleNameManifest reports that the index, SKILL.md or folder has another name.
	RuleNameManifest Rule = "name-manifest"
	RuleExecute      Rule = "execute-missing"
	// RuleHookUndeclared reports an exported hook that the manifest does not declare.
	RuleHookUndeclared Rule = "hook-undeclared"
	RulePlaceholder    Rule = "placeholder"
	RuleWASMAudit      Rule = "wasm-audit"
	RuleSecretLike     Rule = "secret-like"
	RuleIndexUnlisted  Rule = "index-unlisted"
	// RuleProgram reports a broken program. Only the instructions of the skill are loaded.
	RuleProgram Rule = "program"
)

// Problem is a problem with a skill or with the search for skills.
type Problem struct {
	File    string `json:"file"`             // file or folder
	Line    int    `json:"line,omitempty"`   // from 1; 0 if the problem is not about a line
	Column  int    `json:"column,omitempty"` // from 1, in runes
	Field   string `json:"field,omitempty"`  // JSON field, like permissions[0].kind
	Rule    Rule   `json:"rule"`
	Message string `json:"message"`
	Warning bool   `json:"warning"` // the problem does not prevent loading
}

// Words returns the problem without its file and line: field, message and rule.
func (p Problem) Words() string {
	if p.Field == "" {
		return fmt.Sprintf("%s (%s)", p.Message, p.Rule)
	}
	return fmt.Sprintf("%s %s (%s)", p.Field, p.Message, p.Rule)
}

// problem returns an error about a file.
func problem(file string, rule Rule, format string, args ...any) []Problem {
	return []Problem{{File: file, Rule: rule, Message: fmt.Sprintf(format, args...)}}
}

// warning returns a warning about a file.
func warning(file string, rule Rule, format string, args ...any) Problem {
	return Problem{File: file, Rule: rule, Warning: true, Message: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (p Problem) Error() string { return p.String() }

// String returns the problem on one line: file, line, column and words.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
		if p.Column > 0 {
			fmt.Fprintf(&b, ":%d", p.Column)
		}
	}

	b.WriteString(": ")
	if p.Warning {
		b.WriteString("warning: ")
	}

	b.WriteString(p.Words())
	return b.String()
}

// hasError reports whether any problem is not a warning.
func hasError(problems []Problem) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return !p.Warning })
}
