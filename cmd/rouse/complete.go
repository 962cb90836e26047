package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rouse/agent"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/config/yaml"
	"rouse/cmd/internal/homedir"
	"rouse/internal/ledger"
	"rouse/internal/text"
)

const (
	// completeFor is how long a shell waits for what could be meant, at most.
	completeFor = 700 * time.Millisecond
	// maxCompletions is how many runs are offered, the newest.
	maxCompletions = 50
)

// completions find what an argument could be, by its name in the Use of a command or by that of a flag's value. Nothing is ever changed for
// them: they read the configuration without its secrets, ask a daemon that is there, and read a ledger that nobody has open as it lies.
var completions = map[string]func(context.Context, *place) []string{
	"JOB": func(_ context.Context, at *place) []string {
		return at.named(func(cfg *config.Config) (out []string) {
			for _, j := range cfg.Jobs {
				out = append(out, string(j.Name)+"\tof "+j.Agent)
			}
			return out
		})
	},
	"AGENT": func(_ context.Context, at *place) []string { return at.named(agentNames) },
	"TOOL":  func(context.Context, *place) []string { return toolNames() },
	"KEY":   func(context.Context, *place) []string { return keyNames() },
	"RUN": func(ctx context.Context, at *place) []string {
		return recorded(ctx, at, "/v1/runs", runName, func(ctx context.Context, l *ledger.Ledger) (out []api.Run, err error) {
			runs, err := l.Runs(ctx, ledger.RunFilter{Limit: maxCompletions, Brief: true})
			for _, r := range runs {
				out = append(out, api.Run{ID: fmt.Sprint(r.ID), Job: r.Job, Agent: r.Agent, State: r.State, Outcome: r.Outcome, WaitingFor: r.WaitingFor, QueuedAt: api.At(r.QueuedAt)})
			}
			return out, err
		})
	},
	"ITEM": func(ctx context.Context, at *place) []string {
		name := func(i api.Item) string { return i.ID + "\t" + shorten(i.Title, 60) }
		return recorded(ctx, at, "/v1/inbox", name, func(ctx context.Context, l *ledger.Ledger) (out []api.Item, err error) {
			items, err := l.Inbox(ctx)
			for _, i := range items {
				out = append(out, api.Item{ID: fmt.Sprint(i.ID), Title: i.Title})
			}
			return out, err
		})
	},
	"INCIDENT": func(ctx context.Context, at *place) []string {
		name := func(i api.Incident) string { return i.ID + "\t" + shorten(i.Of()+" "+i.Error, 60) }
		return recorded(ctx, at, "/v1/incidents", name, func(ctx context.Context, l *ledger.Ledger) (out []api.Incident, err error) {
			incidents, err := l.Incidents(ctx, ledger.IncidentFilter{})
			for _, i := range incidents {
				out = append(out, api.Incident{ID: fmt.Sprint(i.ID), Job: i.Job, Error: i.Error})
			}
			return out, err
		})
	},
	"KIND":    func(context.Context, *place) []string { return eventKinds() },
	"OUTCOME": func(context.Context, *place) []string { return outcomes },
	"STATE":   func(context.Context, *place) []string { return states },
	"TRIGGER": func(context.Context, *place) []string { return triggers },
}

// fileArguments are completed by the shell.
var fileArguments = strings.Fields("DIR FILE FOLDER PATH HOME BACKUP ARCHIVE")

// completable gives all commands their completions.
func completable(root *cobra.Command, at *place) {
	eachCommand(root, func(cmd *cobra.Command) {
		arguments := argumentsOf(cmd)
		// rouse tools takes a tool, rouse db AGENT a verb behind it.
		if cmd.ValidArgsFunction == nil && len(arguments) > 0 {
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
				n := len(args)
				if last := len(arguments) - 1; n > last && arguments[last].repeats {
					n = last
				}
				if n >= len(arguments) {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return complete(cmd.Context(), at, arguments[n].name, begun)
			}
		}

		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			name, _ := pflag.UnquoteUsage(f)
			if _, known := completions[strings.ToUpper(name)]; !known {
				return
			}
			// It can only be there already, which is as well.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
				return complete(cmd.Context(), at, strings.ToUpper(name), begun)
			})
		})
	})
}

// complete is all that an argument could be that was begun: several names stand for several kinds, and files are left to the shell.
func complete(ctx context.Context, at *place, names, begun string) (out []string, directive cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completeFor)
	defer cancel()

	directive = cobra.ShellCompDirectiveNoFileComp
	for name := range strings.SplitSeq(names, "|") {
		switch find, known := completions[name]; {
		case known:
			for _, one := range find(ctx, at) {
				if strings.HasPrefix(one, begun) {
					out = append(out, one)
				}
			}
		case slices.Contains(fileArguments, name):
			directive = cobra.ShellCompDirectiveDefault
		}
	}
	return out, directive
}

// named are names of the configuration. Its secrets are not looked up: a keyring may ask for a password.
func (at *place) named(names func(*config.Config) []string) []string {
	path, err := yaml.Find(at.config, os.Getenv)
	if err != nil {
		return nil
	}

	// What could be read is there beside an error: a mistake elsewhere does not take the names away.
	doc, _ := yaml.Read(yaml.Options{Path: path, Home: at.home, HoldSecrets: true, Secret: func(string) (string, bool, error) { return "", false, nil }})
	if doc == nil {
		return nil
	}
	return names(doc.Config)
}

func agentNames(cfg *config.Config) (out []string) {
	for _, a := range cfg.Agents {
		out = append(out, string(a.Name))
	}
	return out
}

func toolNames() (out []string) {
	for _, s := range agent.Specs() {
		if s.Listed() {
			out = append(out, s.Name+"\t"+s.FirstSentence())
		}
	}
	return out
}

// keyNames are the paths of the keys, and their last parts alone, by which rouse explain finds them as well.
func keyNames() (out []string) {
	var last []string
	for _, k := range yaml.Keys() {
		// Without the marks of lists, which shells take for patterns.
		path := strings.ReplaceAll(k.Path, "[]", "")
		out = append(out, path+"\t"+shorten(k.Says, 60))
		if at := strings.LastIndex(path, "."); at >= 0 {
			last = append(last, path[at+1:])
		}
	}
	slices.Sort(last)
	return append(out, slices.Compact(last)...)
}

// recorded asks the process that has the home for a list, or else reads the ledger as it lies.
func recorded[T any](ctx context.Context, at *place, path string, name func(T) string, read func(context.Context, *ledger.Ledger) ([]T, error)) (out []string) {
	home, err := at.homeDir()
	if err != nil {
		return nil
	}

	var all []T
	if client, dialed := api.Dial(ctx, homedir.SocketPath(home)); dialed == nil {
		defer client.Close()
		err = client.Get(ctx, path, url.Values{"n": {fmt.Sprint(maxCompletions)}}, &all)
	} else {
		var l *ledger.Ledger
		if l, err = ledger.OpenFrozen(ctx, ledger.Options{Path: filepath.Join(home, "ledger.db"), Blobs: filepath.Join(home, "blobs")}); err == nil {
			defer func() { _ = l.Close() }() // nothing was written
			all, err = read(ctx, l)
		}
	}
	if err != nil {
		return nil
	}
	for _, one := range all {
		out = append(out, name(one))
	}
	return out
}

func runName(r api.Run) string {
	return fmt.Sprintf("%s\t%s %s, %s", r.ID, text.OneLine(jobName(r)), outcomeMark(r), when(r.QueuedAt, time.Now()))
}
