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
	"rouse/internal/ledger/incident"
	"rouse/internal/ledger/runs"
	"rouse/internal/text"
)

const (
	// completeFor is the maximum time a shell waits for completions.
	completeFor = 700 * time.Millisecond
	// maxCompletions is the maximum number of runs that are offered. The newest runs are offered.
	maxCompletions = 50
)

// completions maps the name of an argument or a flag value to a function that returns its possible
// values. The functions only read: the configuration without its secrets, and data of the daemon.
// If no process holds the home, they read the ledger file.
var completions = map[string]func(context.Context, *cli) []string{
	"JOB": func(_ context.Context, env *cli) []string {
		return env.named(func(cfg *config.Config) (out []string) {
			for _, j := range cfg.Jobs {
				out = append(out, string(j.Name)+"\tof "+j.Agent)
			}
			return out
		})
	},
	"AGENT": func(_ context.Context, env *cli) []string { return env.named(agentNames) },
	"TOOL":  func(context.Context, *cli) []string { return toolNames() },
	"KEY":   func(context.Context, *cli) []string { return keyNames() },
	"RUN": func(ctx context.Context, env *cli) []string {
		return recorded(ctx, env, "/v1/runs", runName, func(ctx context.Context, l *ledger.Ledger) (out []api.Run, err error) {
			runs, err := l.Runs.List(ctx, runs.Filter{Limit: maxCompletions, Brief: true})
			for _, r := range runs {
				out = append(out, api.Run{ID: fmt.Sprint(r.ID), Job: r.Job, Agent: r.Agent, State: r.State, Outcome: r.Outcome, WaitingFor: r.WaitingFor, QueuedAt: api.At(r.QueuedAt)})
			}
			return out, err
		})
	},
	"ITEM": func(ctx context.Context, env *cli) []string {
		name := func(i api.Item) string { return i.ID + "\t" + shorten(i.Title, 60) }
		return recorded(ctx, env, "/v1/inbox", name, func(ctx context.Context, l *ledger.Ledger) (out []api.Item, err error) {
			items, err := l.Inbox.List(ctx)
			for _, i := range items {
				out = append(out, api.Item{ID: fmt.Sprint(i.ID), Title: i.Title})
			}
			return out, err
		})
	},
	"INCIDENT": func(ctx context.Context, env *cli) []string {
		name := func(i api.Incident) string { return i.ID + "\t" + shorten(i.Of()+" "+i.Error, 60) }
		return recorded(ctx, env, "/v1/incidents", name, func(ctx context.Context, l *ledger.Ledger) (out []api.Incident, err error) {
			incidents, err := l.Incidents.List(ctx, incident.Filter{})
			for _, i := range incidents {
				out = append(out, api.Incident{ID: fmt.Sprint(i.ID), Job: i.Job, Error: i.Error})
			}
			return out, err
		})
	},
	"KIND":    func(context.Context, *cli) []string { return eventKinds() },
	"OUTCOME": func(context.Context, *cli) []string { return outcomes },
	"STATE":   func(context.Context, *cli) []string { return states },
	"TRIGGER": func(context.Context, *cli) []string { return triggers },
}

// fileArguments are the arguments that the shell completes with file names.
var fileArguments = strings.Fields("DIR FILE FOLDER PATH HOME BACKUP ARCHIVE")

// completable adds completions to all commands.
func completable(root *cobra.Command, env *cli) {
	eachCommand(root, func(cmd *cobra.Command) {
		arguments := argumentsOf(cmd)
		// Only the last argument of a command can repeat. An example is the tool in rouse tools.
		if cmd.ValidArgsFunction == nil && len(arguments) > 0 {
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
				n := len(args)
				if last := len(arguments) - 1; n > last && arguments[last].repeats {
					n = last
				}
				if n >= len(arguments) {
					return nil, cobra.ShellCompDirectiveNoFileComp
				}
				return complete(cmd.Context(), env, arguments[n].name, begun)
			}
		}

		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			name, _ := pflag.UnquoteUsage(f)
			if _, known := completions[strings.ToUpper(name)]; !known {
				return
			}
			// The error only means that a function is registered already.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
				return complete(cmd.Context(), env, strings.ToUpper(name), begun)
			})
		})
	})
}

// complete returns the values that start with begun. names lists alternatives, such as JOB|RUN. The
// shell completes file names itself.
func complete(ctx context.Context, env *cli, names, begun string) (out []string, directive cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completeFor)
	defer cancel()

	directive = cobra.ShellCompDirectiveNoFileComp
	for name := range strings.SplitSeq(names, "|") {
		switch find, known := completions[name]; {
		case known:
			for _, one := range find(ctx, env) {
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

// named returns names from the configuration. It never opens a keyring, which may ask the user.
func (env *cli) named(names func(*config.Config) []string) []string {
	path, err := yaml.Find(env.config, os.Getenv)
	if err != nil {
		return nil
	}

	// Read also returns a partial document, so a mistake elsewhere does not disable completion.
	doc, _ := yaml.Read(yaml.Options{Path: path, Home: env.home, HoldSecrets: true, Secret: func(string) (string, bool, error) { return "", false, nil }})
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

// keyNames returns the paths of all keys, and their last parts, which rouse explain also accepts.
func keyNames() (out []string) {
	var last []string
	for _, k := range yaml.Keys() {
		// Remove the list marks, because shells treat them as patterns.
		path := strings.ReplaceAll(k.Path, "[]", "")
		out = append(out, path+"\t"+shorten(k.Says, 60))
		if at := strings.LastIndex(path, "."); at >= 0 {
			last = append(last, path[at+1:])
		}
	}
	slices.Sort(last)
	return append(out, slices.Compact(last)...)
}

// recorded requests a list from the process that holds the home, or else reads the ledger file.
func recorded[T any](ctx context.Context, env *cli, path string, name func(T) string, read func(context.Context, *ledger.Ledger) ([]T, error)) (out []string) {
	home, err := env.homeDir()
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
			defer func() { _ = l.Close() }() // read only, so a failed close loses no data
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
