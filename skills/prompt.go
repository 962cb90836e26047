package skills

import (
	"fmt"
	"path/filepath"
	"strings"

	"rouse/internal/text"
)

// escaper writes text inside of XML elements (YOA-08).
var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;")

// loadHint tells a model how to use a listed skill.
const loadHint = "To use a skill, load it with load_skill and follow what it says.\n"

// Index lists skills as XML, one element per line (YOA-08); "" for none. It is what a model sees of
// skills that it may load.
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

// pathRules tell a model how to resolve the paths in a skill's instructions (AUT-04, AUT-06).
const pathRules = `Paths in a skill's instructions are relative to its Root Path. Tools need absolute paths: put the Root Path before them. Examples with the Root Path %[1]s:
- ./scripts/run.sh is %[2]s
- scripts/run.sh is %[2]s`

func pathRulesFor(root string) string {
	return fmt.Sprintf(pathRules, root, filepath.Join(root, "scripts", "run.sh"))
}

// Details is a skill whose instructions are part of the prompt.
type Details struct {
	*Skill
	Instructions string
}

// Section is the catalog style of the prompt: all skills, how to load those that are not preloaded,
// and the details of the preloaded ones (AUT-06). It is "" without skills.
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

// details are the instructions of preloaded skills, below the rules about their paths.
func details(preloaded []Details) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### Critical Rules for Using Skills\n\n%s\n\n### Skill Details\n", pathRulesFor(preloaded[0].Dir))
	for _, d := range preloaded {
		fmt.Fprintf(&b, "\n#### %s\n\nRoot Path: %s\n\n%s\n", d.Name, d.Dir, d.Instructions)
	}

	return b.String()
}

// maxListed is how many of a skill's files are listed for a model.
const maxListed = 100

// Content is what a model gets when it loads a skill: name and root, the rule about paths, the
// instructions, and the names of the other files, in a skill_content element (AUT-04, AGS-09, UNI-07).
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

// The styles of the prompt (UNI-08).
const (
	StyleIndex   = "index"   // XML (YOA-08)
	StyleCatalog = "catalog" // Markdown (AUT-06)
)

// Limits of the skills that a prompt lists. The rest can be found by a search.
const (
	maxNamed   = 100
	maxListing = 24 << 10 // bytes of names and descriptions
)

// Listed are the skills that a prompt lists, and how many there are beyond them.
func (v View) Listed() (list []*Skill, more int) {
	size := 0
	// The first one is listed however long it is.
	for i, s := range v.Loadable {
		if size += len(s.Name) + len(s.Description); i == maxNamed || i > 0 && size > maxListing {
			return v.Loadable[:i], len(v.Loadable) - i
		}
	}
	return v.Loadable, 0
}

// Prompt is the part of the system prompt about an agent's skills; "" without any. The error names
// the skill whose instructions cannot be read.
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
