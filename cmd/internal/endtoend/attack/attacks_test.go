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

// attackCase is an attack by a model: the worst answers it could give, and the required result.
// testdata/attacks has a file of attacks for each row of the threats in docs/dev/security-tests.md.
//
// Each attack has its own folder. work is the agent's workdir. Nothing in out may change or leak.
// All texts can contain {{dir}}, {{work}} and {{out}} for these folders. {{net}} is an address that
// must not be contacted, {{web}} a server that some attacks grant, and {{sock}} a socket in out.
// {{home}}, {{config}} and {{daemon}} belong to the daemon.
type attackCase struct {
	Name   string
	How    string // description of the attack, in a sentence
	Long   bool   // slow; played only if ROUSE_TEST_ATTACKS is set
	Canary string // evidence of success, in addition to the common checks
	Needs  []string
	Tiers  string // tiers on which it is played; default both
	// Refused is part of the error for a configuration with this agent. The configuration is not
	// loaded and the attack is not played.
	Refused string

	Agent, Model map[string]any    // in addition to the common settings
	Files        map[string]string // in addition to the common files
	Links        map[string]string
	Hard         map[string]string // additional names of files
	Archives     map[string]members
	Kept         []string // files in work that must not change
	Made         []string // files that it may create outside work
	Untold       []string // texts that no server may receive
	Status       bool     // after the attack, the owner runs git status in each folder of work

	Stage `yaml:",inline"`
	Then  *Stage // a later run
}

// Stage is one run of an attack.
type Stage struct {
	Job map[string]any
	// Other holds the settings of a second agent that makes this run. It has the same workdir by
	// default. If Other is nil, the agent of the attack makes the run.
	Other map[string]any
	Moved map[string]string // files that the owner renames before the run
	Drop  string            // dropped file that starts the run
	// Calls holds the answers of the model, in order. An answer is a text, a call, or a list of
	// calls. A call is the name of its tool with its arguments. For bash, a text is a script that
	// the agent was granted. For other tools, a text is used as the arguments.
	Calls  []any
	Again  bool   // repeat the last answer forever
	Hang   bool   // no more answers follow
	Usage  int    // tokens of each answer
	Kinds  string // kinds of the calls' results; default "ok" for each
	Says   []string
	Unsaid []string

	Answer string         // owner's answer to questions; default deny
	Shows  string         // text that the question must show
	Swap   swap           // change between the question and the answer
	Ends   domain.Outcome // outcome of the run
	Labels string         // labels at the end of the run
	Watch  string         // problem that the owner is told about the watched folder
	Asked  int            // maximum number of requests to the model
	// Blocked is the reason for which the run does not start.
	Blocked string
	True    string // SQL condition on the agent's database
	Wakes   bool   // whether a wake is planned at the end
}

// members holds the content of a tar archive by name. A content that starts with "-> " is the
// target of a link.
type members map[string]string

type swap struct {
	Remove []string
	Files  map[string]string
	Links  map[string]string
}

// threat is one row of the threats table.
type threat struct {
	Row     string
	Attacks []yaml.Node
	file    string
}

// threats reads the attacks.
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

// attacks decodes the attacks of a row. fill replaces the placeholders in braces.
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

// TestAttackList checks that each row of the threats has at least ten attacks. Each attack must
// have a description and evidence of success.
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

// TestAttacks plays the attacks with a scripted model against a real daemon with all its tools. No
// attack may have an effect that was not granted. Each attempt must be recorded with its result,
// and the daemon must survive.
//
// By default it plays every sixth attack of a row, on the strongest tier of the machine.
// ROUSE_TEST_ATTACKS=all plays all attacks on both tiers. Names of attacks in ROUSE_TEST_ATTACKS
// select these.
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
