package skills

import (
	"fmt"
	"path/filepath"
	"strings"

	"rouse/internal/text"
)

// escaper escapes text for XML.
var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;")

// loadHint tells a model how to use a listed skill.
const loadHint = "To use a skill, load it with load_skill and follow what it says.\n"

// Index returns an XML list of skills for a prompt, one element per line. It returns "" if the list
// is empty. It describes skills that a model can load.
func Index(list []*Skill) string {
	if len(list) == 0 {
		return ""
	}

	var b strings.Builder
	b.WriteString("<available_skills>\n")

	for _, s := range list {
		fmt.Fprintf(&b, "  <skill>\n    <name>%s</name>\n    <description>%s</description>\n    <location>%s</location>\n  </skill>\n",
			escaper.Replace(s.Name), escaper.Replace(s.Description), escaper.Replace(s.File))
	}

	b.WriteString("</available_skills>")
	return b.String()
}

// pathRules tells a model how to resolve paths in a skill's instructions.
const pathRules = `Paths in a skill's instructions are relative to its Root Path. Tools need absolute paths: put the Root Path before them. Examples with the Root Path %[1]s:
- ./scripts/run.sh is %[2]s
- scripts/run.sh is %[2]s`

func pathRulesFor(root string) string {
	return fmt.Sprintf(pathRules, root, filepath.Join(root, "scripts", "run.sh"))
}

// Details is a skill with its instructions, for the prompt.
type Details struct {
	*Skill
	Instructions string
}

// Section returns the prompt section of the catalog style. It lists all skills, explains how to
// load the ones that are not preloaded, and contains the preloaded instructions. It returns "" if
// there are no skills.
func Section(list []*Skill, preloaded []Details) string {
	if len(list) == 0 && len(preloaded) == 0 {
		return ""
	}

	var b strings.Builder
	b.WriteString("## Agent Skills\n\n### Skill Catalog\n\n")
	entry := func(s *Skill) { fmt.Fprintf(&b, "- **%s**: %s\n", s.Name, text.Collapse(s.Description)) }
	for _, d := range preloaded {
		entry(d.Skill)
	}
	for _, s := range list {
		entry(s)
	}

	if len(list) > 0 {
		b.WriteString("\nTo use a skill without details below, load it with load_skill and follow its instructions.\n")
	}

	if len(preloaded) > 0 {
		b.WriteString("\n" + details(preloaded))
	}

	return b.String()
}

// details returns the path rules and the instructions of preloaded skills.
func details(preloaded []Details) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### Critical Rules for Using Skills\n\n%s\n\n### Skill Details\n", pathRulesFor(preloaded[0].Dir))
	for _, d := range preloaded {
		fmt.Fprintf(&b, "\n#### %s\n\nRoot Path: %s\n\n%s\n", d.Name, d.Dir, d.Instructions)
	}

	return b.String()
}

// maxListed is the maximum number of a skill's files that a model sees.
const maxListed = 100

// Content returns the skill_content element that a model gets when it loads the skill. It contains
// the name, the root directory, the path rules, the instructions and the names of other files.
func (s *Skill) Content() (string, error) {
	instructions, err := s.Instructions()
	if err != nil {
		return "", err
	}

	files, more, err := s.Files(maxListed)
	if err != nil {
		return "", err
	}

	var b strings.Builder
	fmt.Fprintf(&b, "<skill_content name=\"%s\">\n# Skill: %s\n\nRoot Path: %s\n\n%s\n\n%s\n", escaper.Replace(s.Name), s.Name, s.Dir, pathRulesFor(s.Dir), instructions)
	if len(files) > 0 {
		b.WriteString("\n<skill_resources>\n")
		for _, f := range files {
			fmt.Fprintf(&b, "  <file>%s</file>\n", escaper.Replace(f))
		}

		if more {
			fmt.Fprintf(&b, "  <!-- there are more than %d -->\n", maxListed)
		}

		b.WriteString("</skill_resources>\n")
	}

	b.WriteString("</skill_content>")
	return b.String(), nil
}

// The styles of the skills section of a prompt.
const (
	StyleIndex   = "index"   // XML
	StyleCatalog = "catalog" // Markdown
)

// Limits of the skill list in a prompt. A model finds other skills by search.
const (
	maxNamed   = 100
	maxListing = 24 << 10 // bytes of names and descriptions
)

// Listed returns the skills that a prompt lists, and the number of omitted skills.
func (v View) Listed() (list []*Skill, more int) {
	size := 0
	// The first skill is always listed, even if it is too long.
	for i, s := range v.Loadable {
		if size += len(s.Name) + len(s.Description); i == maxNamed || i > 0 && size > maxListing {
			return v.Loadable[:i], len(v.Loadable) - i
		}
	}
	return v.Loadable, 0
}

// Prompt returns the section of the system prompt about the agent's skills, or "" if there are
// none. The error names the skill whose instructions cannot be read.
func (v View) Prompt(style string) (string, error) {
	var preloaded []Details
	for _, s := range v.Preloaded {
		text, err := s.Instructions()
		if err != nil {
			return "", fmt.Errorf("the skill %s cannot be read: %w", s.Name, err)
		}
		preloaded = append(preloaded, Details{s, text})
	}

	listed, more := v.Listed()
	var b strings.Builder
	if style == StyleCatalog {
		b.WriteString(Section(listed, preloaded))
	} else {
		if len(listed) > 0 {
			b.WriteString(Index(listed) + "\n" + loadHint)
		}
		if len(preloaded) > 0 {
			b.WriteString("## Agent Skills\n\n" + details(preloaded))
		}
	}

	if more > 0 {
		fmt.Fprintf(&b, "There are %d more skills; find them by words with capabilities_discover.\n", more)
	}

	return b.String(), nil
}
