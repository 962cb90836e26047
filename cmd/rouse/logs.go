package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/ledger/event"
	"rouse/internal/ledger/pause"
	"rouse/internal/text"
)

func newLogs(env *cli) *cobra.Command {
	var follow bool
	var kinds []string
	var since, job string
	cmd := &cobra.Command{
		Use:   "logs [RUN]",
		Short: "Prints the record of events, of one run or of all; -f follows it",
		Long: `Prints the record of events, of one run or of all; -f follows it.

While it follows, it also prints an answer as its model writes it (step.output, step.draft), and with --kind step.progress or
--json that a model or a program goes on. These lines are on no record.

--since takes a length of time back from now, or a time (see: rouse help times).`,
		Example: `  rouse logs --since yesterday --job inbox
  rouse logs --since "monday 08:00" --kind run.finished
  rouse logs 12 -f`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkKinds(kinds); err != nil {
				return err
			}
			q := queryOf("run", strings.Join(args, ""), "job", job)
			q["kind"] = kinds
			return env.with(toRead, func(s *session, _ []string) error {
				from, err := s.since("--since", since)
				if err != nil {
					return err
				}
				if from != "" {
					q.Set("since", from)
				}
				if follow {
					// Without another process there are no new events, so following would not end.
					if s.local != nil {
						return fmt.Errorf("nothing runs on %s, so there is nothing to follow; start a daemon with: rouse serve", s.home)
					}
					q.Set("follow", "true")
					q.Set("live", "true")
				}
				return printEvents(s.cmd.Context(), s, q)
			})(cmd, args)
		},
	}

	cmd.Flags().StringSliceVar(&kinds, "kind", nil, "only events of this `kind`, or kinds: run.finished, call.*")
	cmd.Flags().StringVar(&job, "job", "", "only events of this `job`")
	cmd.Flags().StringVar(&since, "since", "", "only events since a `time`: 2h, yesterday, \"monday 08:00\", 2026-11-21")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on as events happen")
	cmd.Flags().Bool("json", false, "print JSON lines")
	return cmd
}

// checkKinds returns an error for unknown kinds. A misspelt kind would print an empty list.
func checkKinds(wanted []string) error {
	known := eventKinds()
	for _, kind := range wanted {
		prefix, all := strings.CutSuffix(kind, "*")
		if !slices.ContainsFunc(known, func(k string) bool { return k == kind || all && strings.HasPrefix(k, prefix) }) {
			hint := cmp.Or(text.DidYouMean(kind, known), "docs/reference/events.md lists them")
			return usagef("--kind: there is no event %q; %s", kind, hint)
		}
	}
	return nil
}

func eventKinds() (out []string) {
	for _, k := range event.Kinds() {
		out = append(out, k.Kind)
	}
	return out
}

// printEvents prints a stream of events until the stream ends.
func printEvents(ctx context.Context, s *session, q url.Values) error {
	for line, err := range s.Lines(ctx, "/v1/events", q) {
		if err != nil {
			return err
		}
		if wantsJSON(s.cmd) {
			// Print the received line, so that fields unknown to this version are kept.
			fmt.Fprintf(s.out, "%s\n", line)
			continue
		}
		e, err := eventOf(line)
		if err != nil {
			return err
		}
		// Progress events come twice a second, so they are printed only on request.
		if e.Kind != api.EventProgress || len(q["kind"]) > 0 {
			printEvent(s.out, e, s.now())
		}
	}
	return nil
}

func eventOf(line json.RawMessage) (e api.Event, err error) {
	if err := json.Unmarshal(line, &e); err != nil {
		return e, fmt.Errorf("an event was not understood: %w; is the daemon of the same version?", err)
	}
	return e, nil
}

func printEvent(w io.Writer, e api.Event, now time.Time) {
	who := cmp.Or(e.Job, whom(e))
	if e.Run != "" {
		who += " #" + e.Run
	}
	fmt.Fprintf(w, "%s  %-20s %-24s %s\n", dated(e.At, now), e.Kind, text.OneLine(who), eventText(e))
}

// whom returns the subject of an event that does not belong to a job: an agent or everything.
func whom(e api.Event) string {
	var data struct{ Scope, Name, Agent string }
	if json.Unmarshal(e.Data, &data) != nil {
		return ""
	}

	switch {
	case data.Scope == pause.All:
		return "everything"
	case data.Scope == pause.Agent:
		return "agent " + data.Name
	case data.Agent != "" && e.Run == "":
		return "agent " + data.Agent
	}
	return ""
}

// maxLivePart is the maximum number of characters of live output per event. The first can be long.
const maxLivePart = 2000

// eventText formats the data of an event for people: its relevant values, in a fixed order.
func eventText(e api.Event) string {
	var data map[string]any
	if json.Unmarshal(e.Data, &data) != nil {
		return shorten(string(e.Data), 200)
	}

	most := 200
	if e.Kind == api.EventOutput || e.Kind == api.EventDraft {
		most = maxLivePart
	}

	var parts []string
	for _, key := range []string{"trigger", "attempt", "step", "label", "tool", "state", "outcome", "summary", "error", "reason", "gate", "value", "question", "answer", "title", "channel", "path", "folder", "dest", "nominal", "at", "until", "level", "text", "bytes", "ms"} {
		v, ok := data[key]
		if !ok || v == "" {
			continue
		}
		said := cell(v)
		switch key {
		case "attempt", "step":
			said = key + " " + said
		case "bytes", "ms":
			said += " " + key
		case "dest":
			said = "→ " + said
		}
		parts = append(parts, said)
	}
	return shorten(strings.Join(parts, "  "), most)
}
