package skills

import (
	"fmt"
	"slices"
	"strings"
)

// Rule names a requirement for skills.
type Rule string

// The rules of the AgentSkills standard (AGS-01, AGS-02, AGS-03).
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

// The rules of this package, beyond the standard.
const (
	RuleEncoding    Rule = "encoding"     // UTF-8, of a text
	RuleUnreadable  Rule = "unreadable"   // an error of the operating system
	RuleTooLarge    Rule = "too-large"    // beyond MaxFile
	RuleNotRegular  Rule = "not-regular"  // SKILL.md is a folder, a pipe, a device
	RuleLinkOutside Rule = "link-outside" // a link that leads out of the directory that is searched
	RuleEntry       Rule = "entry"        // an entry that no skill may contain that is installed or trusted
	RuleShadowed    Rule = "shadowed"     // another skill of the same name comes later
	RuleUntrusted   Rule = "untrusted"    // its root is not trusted (AGS-06)
	RuleChanged     Rule = "changed"      // not what it was when it was trusted
	RuleLimit       Rule = "limit"        // the search did not cover everything (AGS-05)
)

// The rules of executable skills (OSL-01, OSL-03, OSL-04, OSL-05), of which these are errors.
const (
	RuleManifestMissing Rule = "manifest-missing"
	RuleModuleMissing   Rule = "module-missing"
	RuleSyntax          Rule = "syntax" // module.ts, or what it imports, does not compile
	RuleJSON            Rule = "json"
	RuleFieldMissing    Rule = "field-missing"
	RuleFieldType       Rule = "field-type"
	RuleFieldValue      Rule = "field-value"
	RuleSlug            Rule = "slug"
	RuleVersion         Rule = "semver"
	RuleSchemaVersion   Rule = "schema-version"
	RuleSchema          Rule = "schema"
	RuleSchemaRoot      Rule = "schema-root"
	RuleAgenticConfig   Rule = "agentic-config"     // enabled, and the mode is not agentic, or the reverse
	RuleWorkspace       Rule = "workspace-required" // requiresWorkspace without workspaceSupport: required
	RuleNameTwice       Rule = "name-twice"
	RuleSecret          Rule = "secret"
	RuleWASM            Rule = "wasm"           // a WebAssembly module is not there, or not the one that was audited
	RuleExport          Rule = "export-missing" // the manifest names an export that the module does not have
	RuleIndexMismatch   Rule = "index-mismatch" // the index says something else than the manifest
	RuleIndexFolder     Rule = "index-folder"   // an entry whose folder is not there, or no folder of the repository
)

// The rules of executable skills that warn.
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
	RuleNameManifest     Rule = "name-manifest" // index, SKILL.md or folder call it something else
	RuleExecute          Rule = "execute-missing"
	RuleHookUndeclared   Rule = "hook-undeclared" // the module exports a hook that the manifest does not name
	RulePlaceholder      Rule = "placeholder"
	RuleWASMAudit        Rule = "wasm-audit"
	RuleSecretLike       Rule = "secret-like"
	RuleIndexUnlisted    Rule = "index-unlisted"
	RuleProgram          Rule = "program" // of a skill whose instructions are loaded, and whose program is not
)

// Problem is something that is wrong with a skill, or with the search for skills.
type Problem struct {
	File    string `json:"file"`             // or folder
	Line    int    `json:"line,omitempty"`   // from 1; 0 if the problem is not about a line
	Column  int    `json:"column,omitempty"` // from 1, in runes
	Field   string `json:"field,omitempty"`  // of JSON, like permissions[0].kind
	Rule    Rule   `json:"rule"`
	Message string `json:"message"`
	Warning bool   `json:"warning"` // the skill is loaded all the same
}

// Words returns the problem without its place in a file: field, message, rule.
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

// String returns the problem on one line: file, line, and its words.
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

// hasError reports whether any of the problems is more than a warning.
func hasError(problems []Problem) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return !p.Warning })
}
