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

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/internal/text"
)

func newLogs(at *place) *cobra.Command {
	var follow, asJSON bool
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
		Args: cobra.MaximumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			if err := checkKinds(kinds); err != nil {
				return err
			}

			s, err := at.openToRead(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()

			q := url.Values{"kind": kinds}
			if len(args) == 1 {
				q.Set("run", args[0])
			}
			if job != "" {
				q.Set("job", job)
			}
			switch from, err := s.since("--since", since); {
			case err != nil:
				return err
			case !from.IsZero():
				q.Set("since", from.Format(time.RFC3339Nano))
			}

			if follow {
				// In this process the stream would wait for events that nobody causes.
				if s.local != nil {
					return fmt.Errorf("nothing runs on %s, so there is nothing to follow; start a daemon with: rouse serve", s.home)
				}
				q.Set("follow", "true")
				q.Set("live", "true")
			}

			return printEvents(cmd.Context(), cmd, s, q, asJSON)
		}),
	}

	cmd.Flags().StringSliceVar(&kinds, "kind", nil, "only events of this `kind`, or kinds: run.finished, call.*")
	cmd.Flags().StringVar(&job, "job", "", "only events of this `job`")
	cmd.Flags().StringVar(&since, "since", "", "only events since a `time`: 2h, yesterday, \"monday 08:00\", 2026-11-21")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on as events happen")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}

// checkKinds refuses a kind of which there is none: nothing would be found of it, which looks like an answer.
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
	for _, k := range ledger.EventKinds() {
		out = append(out, k.Kind)
	}
	return out
}

// printEvents writes a stream of events until it ends.
func printEvents(ctx context.Context, cmd *cobra.Command, s *session, q url.Values, asJSON bool) error {
	out := cmd.OutOrStdout()
	for line, err := range s.Lines(ctx, "/v1/events", q) {
		if err != nil {
			return err
		}

		if asJSON {
			// The line as it came, so that fields which this version does not know are not lost.
			if _, err := fmt.Fprintf(out, "%s\n", line); err != nil {
				return err
			}
			continue
		}

		var e api.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("an event was not understood: %w; is the daemon of the same version?", err)
		}
		// Twice a second that something goes on is for who asks for it.
		if e.Kind == api.EventProgress && len(q["kind"]) == 0 {
			continue
		}

		printEvent(out, e, s.now())
	}

	return nil
}

func printEvent(w io.Writer, e api.Event, now time.Time) {
	who := cmp.Or(e.Job, whom(e))
	if e.Run != "" {
		who += " #" + e.Run
	}
	fmt.Fprintf(w, "%s  %-20s %-24s %s\n", dated(e.At, now), e.Kind, text.OneLine(who), eventText(e))
}

// whom an event is about that is of no job: an agent, or everything.
func whom(e api.Event) string {
	var data struct{ Scope, Name, Agent string }
	if json.Unmarshal(e.Data, &data) != nil {
		return ""
	}

	switch {
	case data.Scope == ledger.PauseAll:
		return "everything"
	case data.Scope == ledger.PauseAgent:
		return "agent " + data.Name
	case data.Agent != "" && e.Run == "":
		return "agent " + data.Agent
	}

	return ""
}

// maxLivePart bounds what is printed of an answer at once, in characters: at the beginning that may be much.
const maxLivePart = 2000

// eventText is an event's data as a person reads it: the values that say something, in the
// order in which they are asked for.
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

		switch key {
		case "attempt", "step":
			parts = append(parts, fmt.Sprintf("%s %s", key, cell(v)))
		case "bytes":
			parts = append(parts, cell(v)+" bytes")
		case "ms":
			parts = append(parts, cell(v)+" ms")
		case "dest":
			parts = append(parts, "→ "+cell(v))
		default:
			parts = append(parts, cell(v))
		}
	}

	return shorten(strings.Join(parts, "  "), most)
}
