package main

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rouse/internal/text"
	"rouse/skills"
)

// verdict is what `rouse skills validate --json` prints of a skill.
type verdict struct {
	Dir      string           `json:"dir"`
	Valid    bool             `json:"valid"` // by the standard
	Loads    bool             `json:"loads"` // agents get it all the same
	Problems []skills.Problem `json:"problems"`
	Refused  []skills.Problem `json:"refused,omitempty"` // why it does not load
}

// validated is what it prints of all.
type validated struct {
	Skills int            `json:"skills"`
	Valid  int            `json:"valid"`
	Load   int            `json:"load"`
	Rules  map[string]int `json:"rules"` // why skills do not load, by rule
	All    []verdict      `json:"all"`
}

func newSkillsValidate() *cobra.Command {
	var asJSON, recursive, summary bool
	cmd := &cobra.Command{
		Use:   "validate FOLDER...",
		Short: "Holds skills to the standard, and lists all that breaks it; exits 1 if anything does",
		Long: `Holds skills to the AgentSkills standard, and lists all that breaks it. What agents get is
held to less: a skill that has a description loads, and the last line says how many do.`,
		Args: cobra.MinimumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			dirs := args
			if recursive {
				dirs = nil
				for _, a := range args {
					below, err := skillFolders(a)
					if err != nil {
						return err
					}
					dirs = append(dirs, below...)
				}
			}

			result := validate(dirs)
			if asJSON {
				if err := printJSON(cmd.OutOrStdout(), result); err != nil {
					return err
				}
			} else {
				printVerdicts(cmd.OutOrStdout(), result, summary)
			}

			if result.Valid < result.Skills {
				return errSilent
			}

			return nil
		}),
	}

	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVar(&recursive, "recursive", false, "all skills below the folders, at any depth")
	f.BoolVar(&summary, "summary", false, "print the figures only")

	return cmd
}

// skillFolders finds the folders with a SKILL.md below one, itself included.
func skillFolders(root string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && e.Name() == ".git":
			return fs.SkipDir
		case !e.IsDir() && (e.Name() == "SKILL.md" || e.Name() == "skill.md"):
			// A folder can hold both spellings where the file system tells cases apart.
			if dir := filepath.Dir(path); len(out) == 0 || out[len(out)-1] != dir {
				out = append(out, dir)
			}
		}
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s holds no skill, which is a folder with a SKILL.md", root)
	}

	return out, err
}

func validate(dirs []string) validated {
	out := validated{Skills: len(dirs), Rules: map[string]int{}, All: []verdict{}}
	for _, dir := range dirs {
		v := verdict{Dir: dir, Problems: append([]skills.Problem{}, skills.Validate(dir)...)}
		s, problems := skills.Load(dir)
		v.Valid, v.Loads = len(v.Problems) == 0, s != nil
		if v.Valid {
			out.Valid++
		}

		if v.Loads {
			out.Load++
		} else {
			v.Refused = slices.DeleteFunc(problems, func(p skills.Problem) bool { return p.Warning })
			// By the first reason alone, so that the counts add up to the skills that do not load.
			out.Rules[string(v.Refused[0].Rule)]++
		}

		out.All = append(out.All, v)
	}

	return out
}

func printVerdicts(w io.Writer, v validated, summary bool) {
	for _, one := range v.All {
		for _, p := range one.Problems {
			if !summary {
				fmt.Fprintln(w, text.OneLine(p.String()))
			}
		}
	}

	fmt.Fprintf(w, "%d of %d skills are valid; %d load (%.1f %%)\n", v.Valid, v.Skills, v.Load, 100*float64(v.Load)/float64(max(v.Skills, 1)))
	var rules []string
	for _, rule := range slices.Sorted(maps.Keys(v.Rules)) {
		rules = append(rules, fmt.Sprintf("%s %d", rule, v.Rules[rule]))
	}

	if len(rules) > 0 {
		fmt.Fprintf(w, "not loaded: %s\n", strings.Join(rules, ", "))
	}
}
