package attack

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"rouse/cmd/internal/endtoend"
	"rouse/internal/domain"
)

// attackCase is what a model does that its agent's owner did not want: the worst that it could answer,
// and what must come of it. testdata/attacks has a file of them for each row of the threats in
// docs/dev/security-tests.md.
//
// Each has a folder of its own, with work, the agent's workdir, and out, in which nothing may change
// and from which nothing may leak. In all texts {{dir}}, {{work}} and {{out}} are these folders,
// {{net}} is an address at which nobody may ask, {{web}} a server that is granted to some, {{sock}}
// a socket in out, {{home}}, {{config}} and {{daemon}} those of the daemon.
type attackCase struct {
	Name   string
	How    string // it goes about it, in a sentence
	Long   bool   // it takes longer than others, and is played when ROUSE_TEST_ATTACKS is set
	Canary string // what shows whether it came through, in addition to what is checked for all of them
	Needs  []string
	Tiers  string // on which it is played, when not on both
	// Refused is what is said of a configuration with this agent, which no daemon accepts: nothing is played.
	Refused string

	Agent, Model map[string]any    // settings in addition to those of all
	Files        map[string]string // in addition to those of all
	Links        map[string]string
	Hard         map[string]string // further names of files
	Archives     map[string]members
	Kept         []string // what must not change in work
	Made         []string // what it may create outside work
	Untold       []string // texts that no server may get
	Status       bool     // in the end, the owner asks git status in each folder of work

	Stage `yaml:",inline"`
	Then  *Stage // a later run
}

// Stage is one run of an attack.
type Stage struct {
	Job map[string]any
	// Other are the settings of another agent that makes this run, in the same workdir if they do not say
	// otherwise; none: it is the attack's own.
	Other map[string]any
	Moved map[string]string // what the owner gives another name to before it
	Drop  string            // the file that starts the run, as if somebody had dropped it
	// Calls are the answers of the model, in order: a text, a call, or a list of calls that are one
	// answer. A call is the name of its tool with its arguments; bash with a text is a script that
	// the agent was granted, and another tool with a text has it for its arguments.
	Calls  []any
	Again  bool   // the last answer is given for ever
	Hang   bool   // the answers are followed by silence
	Usage  int    // tokens of each answer
	Kinds  string // of the results of the calls, "ok" for each when absent
	Says   []string
	Unsaid []string

	Answer string         // of the owner to what he is asked; deny when absent
	Shows  string         // what he is shown
	Swap   swap           // what changes between his answer and the question
	Ends   domain.Outcome // outcome of the run
	Labels string         // that it has in the end
	Watch  string         // what the owner is told, in the end, of the folder that starts the run
	Asked  int            // how often the model may be asked
	// Blocked is why the run does not begin, while nothing is mended.
	Blocked string
	True    string // SQL on the agent's database
	Wakes   bool   // whether one is planned in the end
}

// members are what an archive (tar) holds by name: texts and, with "-> " before them, where links lead.
type members map[string]string

type swap struct {
	Remove []string
	Files  map[string]string
	Links  map[string]string
}

// threat is one row of the table.
type threat struct {
	Row     string
	Attacks []yaml.Node
	file    string
}

// threats reads the list.
func threats(t *testing.T) []threat {
	t.Helper()
	files, err := filepath.Glob("testdata/attacks/*.yaml")
	if err != nil {
		t.Fatal(err)
	}

	var out []threat
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		one := threat{file: file}
		if err := yaml.Unmarshal(text, &one); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, one)
	}

	return out
}

// attacks decodes those of a row, with the words of fill for what stands in braces.
func (r threat) attacks(t *testing.T, fill func(name string) *strings.Replacer) []attackCase {
	t.Helper()
	var out []attackCase
	for _, n := range r.Attacks {
		var name struct{ Name string }
		if err := n.Decode(&name); err != nil {
			t.Fatalf("%s: %v", r.file, err)
		}

		if fill != nil {
			expand(&n, fill(name.Name))
		}

		text, err := yaml.Marshal(&n)
		if err != nil {
			t.Fatal(err)
		}

		var a attackCase
		dec := yaml.NewDecoder(strings.NewReader(string(text)))
		dec.KnownFields(true)
		if err := dec.Decode(&a); err != nil {
			t.Fatalf("%s: %s: %v", r.file, name.Name, err)
		}

		out = append(out, a)
	}

	return out
}

func expand(n *yaml.Node, words *strings.Replacer) {
	n.Value = words.Replace(n.Value)
	for _, c := range n.Content {
		expand(c, words)
	}
}

// The list covers each row of the threats with ten attacks at least, each of which says how it goes
// about it and what shows whether it came through.
func TestAttackList(t *testing.T) {
	named, total := map[string]bool{}, 0
	for _, row := range threats(t) {
		all := row.attacks(t, nil)
		t.Logf("%3d attacks: %s", len(all), row.Row)
		if total += len(all); len(all) < 10 || row.Row == "" {
			t.Errorf("%s: %d attacks of the row %q", row.file, len(all), row.Row)
		}

		for _, a := range all {
			if named[a.Name] || !regexp.MustCompile(`^[a-z0-9-]{3,40}$`).MatchString(a.Name) {
				t.Errorf("%s: the name %q is not one of its own", row.file, a.Name)
			}
			if a.How == "" || a.Canary == "" || len(a.Calls) == 0 && a.Refused == "" {
				t.Errorf("%s: %s does not say how it goes about it, or by what it is noticed", row.file, a.Name)
			}
			named[a.Name] = true
		}
	}

	t.Logf("%3d attacks in all", total)
}

// TestAttacks plays the list with a scripted model against a real daemon with all of its tools.
// Nothing comes of any attack that was not granted, each attempt is on record with its answer, and
// the daemon is there afterwards. By default every sixth of a row is played, on the strongest confinement
// that the machine has; ROUSE_TEST_ATTACKS=all plays all on both, and names of attacks in it play those.
func TestAttacks(t *testing.T) {
	chosen := strings.Fields(os.Getenv("ROUSE_TEST_ATTACKS"))
	if len(chosen) == 0 && (testing.Short() || endtoend.Raced()) {
		t.Skip("it starts many programs, whose time is lost under the race detector")
	}

	for i, tier := range confinements(t) {
		for _, row := range threats(t) {
			t.Run(tier.name+"/"+strings.TrimSuffix(filepath.Base(row.file), ".yaml"), func(t *testing.T) {
				t.Parallel()
				b := startAttackSuite(t, tier, row, func(n int, a attackCase) bool {
					switch {
					case a.Tiers != "" && a.Tiers != tier.name:
						return false
					case len(chosen) == 0:
						return !a.Long && i == 0 && n%6 == 0
					}
					return chosen[0] == "all" || slices.Contains(chosen, a.Name)
				})

				t.Run("attack", func(t *testing.T) {
					for _, a := range b.attacks {
						t.Run(a.Name, func(t *testing.T) {
							t.Parallel()
							b.runAttack(t, a)
						})
					}
				})

				b.checkDaemonUnchanged(t)
			})
		}
	}
}
