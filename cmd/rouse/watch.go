package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/homedir"
	"rouse/cmd/internal/terminal"
	"rouse/internal/domain"
	"rouse/internal/text"
)

const (
	// gatherFor is how long further events are waited for before what they changed is asked for: a run makes many at once.
	gatherFor = 200 * time.Millisecond
	// reconnectAfter is how long a screen waits before it looks for a daemon again.
	reconnectAfter = 2 * time.Second
	// askFor is how long an answer is waited for.
	askFor = 10 * time.Second
)

func newWatch(at *place) *cobra.Command {
	return &cobra.Command{
		Use:   "watch",
		Short: "Shows live what runs, what waits, what comes and what was last; q ends it",
		Long: `Shows live what runs, what waits for you, what comes and what was last. It follows the events of
the daemon, and asks it only when something happened. q or Ctrl-C ends it.

Where standard output is no terminal, and where TERM is dumb, it prints lines: what is on, and then
each event of a run. For programs there is rouse logs -f --json.`,
		RunE: at.inHome(func(cmd *cobra.Command, _ []string, home string) error {
			// Never at.open: who only looks does not take the home.
			client, err := connectToWatch(cmd.Context(), home)
			if err != nil {
				return err
			}

			out, ok := cmd.OutOrStdout().(*os.File)
			if !ok {
				return watchLines(cmd.Context(), cmd.OutOrStdout(), client)
			}
			screen, err := terminal.OpenScreen(os.Stdin, out, os.Getenv)
			if errors.Is(err, terminal.ErrNoScreen) {
				return watchLines(cmd.Context(), out, client)
			}
			if err != nil {
				return err
			}
			w := &liveScreen{home: home, client: client, screen: screen, paint: terminal.Fixed(nil, 0, terminal.Of(out, os.Environ()).HasColours())}
			return errors.Join(w.run(cmd.Context()), screen.Close())
		}),
	}
}

// connectToWatch connects to the daemon, or to a command that executes a run.
func connectToWatch(ctx context.Context, home string) (*api.Client, error) {
	client, _, err := homedir.Connect(ctx, home)
	if errors.Is(err, api.ErrNoDaemon) {
		return nil, fmt.Errorf("no daemon serves %s, so there is nothing to watch; start one with: rouse serve", home)
	}
	return client, err
}

// snapshot is what a screen shows.
type snapshot struct {
	status  api.Status
	open    []api.Run // running, waiting and queued
	latest  []api.Run
	inbox   []api.Item
	coming  []api.Occurrence
	problem error // why it could not be asked for; nil: it could
}

// maxWatched is how many runs are asked for of each kind.
const maxWatched = 30

func takeSnapshot(ctx context.Context, c *api.Client) (s snapshot) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()

	n := fmt.Sprint(maxWatched)
	s.problem = errors.Join(
		c.Get(ctx, "/v1/status", nil, &s.status),
		c.Get(ctx, "/v1/inbox", nil, &s.inbox),
		c.Get(ctx, "/v1/next", url.Values{"n": {fmt.Sprint(maxWatched)}}, &s.coming),
		c.Get(ctx, "/v1/runs", url.Values{"n": {n}, "state": {string(domain.StateFinished)}}, &s.latest),
	)
	s.coming = nextOfEach(s.coming)
	for _, state := range []domain.State{domain.StateRunning, domain.StateWaiting, domain.StateQueued} {
		var runs []api.Run
		s.problem = errors.Join(s.problem, c.Get(ctx, "/v1/runs", url.Values{"n": {n}, "state": {string(state)}}, &runs))
		s.open = append(s.open, runs...)
	}
	return s
}

// followEvents sends the events of a daemon from now on, and at the end why there are no more.
func followEvents(ctx context.Context, c *api.Client, events chan<- api.Event) error {
	for line, err := range c.Lines(ctx, "/v1/events", url.Values{"follow": {"true"}, "from_now": {"true"}}) {
		if err != nil {
			return err
		}
		e, err := eventOf(line)
		if err != nil {
			return err
		}
		select {
		case events <- e:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// watchLines prints what is on, and then each event of runs, until the daemon ends.
func watchLines(ctx context.Context, w io.Writer, c *api.Client) error {
	s := takeSnapshot(ctx, c)
	if s.problem != nil {
		return s.problem
	}

	for _, r := range s.open {
		fmt.Fprintf(w, "%s  %s  #%s\n", outcomeMark(r), jobName(r), r.ID)
	}
	for _, i := range s.inbox {
		fmt.Fprintf(w, "? %s  %s\n", shorten(i.Title, 160), answerHint(i))
	}

	events := make(chan api.Event)
	ended := make(chan error, 1)
	go func() { ended <- followEvents(ctx, c, events) }()
	for {
		select {
		case e := <-events:
			if e.Run != "" {
				printEvent(w, e, time.Now().In(loadZone(s.status.Zone)))
			}
		case err := <-ended:
			if err == nil && ctx.Err() == nil {
				err = errors.New("the daemon has ended")
			}
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// liveScreen is a screen of a home.
type liveScreen struct {
	home   string
	client *api.Client
	screen *terminal.Screen
	paint  terminal.Terminal

	events    chan api.Event
	ended     chan error // of the stream of events
	snapshots chan snapshot
	asking    bool // a snapshot is on its way
	failed    bool // the last one could not be taken

	shown snapshot
	doing map[string]string // what a run does, by its id
	gone  bool              // no daemon answers
}

// run draws until its user has enough. All that changes what is shown happens here.
func (w *liveScreen) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.doing = map[string]string{}
	w.events, w.ended, w.snapshots = make(chan api.Event), make(chan error, 1), make(chan snapshot, 1)
	w.follow(ctx)

	second := time.NewTicker(time.Second) // times go on, and nobody is asked for them
	defer second.Stop()
	gathered, again := newStopped(), newStopped()
	for {
		select {
		case <-w.screen.Quit():
			return nil
		case <-ctx.Done():
			return nil
		case s := <-w.snapshots:
			w.take(s)
		case e := <-w.events:
			w.note(e)
			gathered.Reset(gatherFor)
		case <-gathered.C:
			if !w.ask(ctx) {
				gathered.Reset(gatherFor)
			}
		case err := <-w.ended:
			w.gone = err == nil || ctx.Err() == nil
			again.Reset(reconnectAfter)
		case <-again.C:
			if !w.reconnect(ctx) {
				again.Reset(reconnectAfter)
			}
		case <-w.screen.Resized():
			w.screen.Forget()
		case <-second.C:
			if (w.failed || w.passed(time.Now())) && !w.gone {
				w.ask(ctx)
			}
		}

		columns, lines := w.screen.Size()
		if err := w.screen.Draw(w.frame(time.Now().In(loadZone(w.shown.status.Zone)), columns, lines)); err != nil {
			return err
		}
	}
}

// follow begins to hear the events of the daemon, and asks how everything stands.
func (w *liveScreen) follow(ctx context.Context) {
	c := w.client
	go func() { w.ended <- followEvents(ctx, c, w.events) }()
	w.ask(ctx)
}

// ask has a snapshot taken; false: one is on its way, which may have been taken too early.
func (w *liveScreen) ask(ctx context.Context) bool {
	if w.asking {
		return false
	}

	w.asking = true
	c := w.client
	go func() { w.snapshots <- takeSnapshot(ctx, c) }()
	return true
}

// reconnect looks for a daemon that was started again; false: there is none yet.
func (w *liveScreen) reconnect(ctx context.Context) bool {
	client, err := connectToWatch(ctx, w.home)
	if err != nil {
		return false
	}

	w.client.Close()
	w.client, w.gone = client, false
	w.follow(ctx)
	return true
}

// newStopped is a timer that nobody has started.
func newStopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// take shows what was asked for. What could not be had leaves the screen as it was.
func (w *liveScreen) take(s snapshot) {
	w.asking, w.failed = false, s.problem != nil
	if w.failed {
		return
	}

	w.shown = s
	known := map[string]bool{}
	for _, r := range s.open {
		known[r.ID] = true
	}
	for id := range w.doing {
		if !known[id] {
			delete(w.doing, id)
		}
	}
}

// note keeps what a run does, as its events tell.
func (w *liveScreen) note(e api.Event) {
	if e.Run == "" {
		return
	}

	switch e.Kind {
	case "step.started":
		w.doing[e.Run] = "asks its model"
	case "call.started", "skill.progress", "skill.step", "run.waiting":
		if said := eventText(e); said != "" {
			w.doing[e.Run] = said
		}
	}
}

// passed says whether an instant that is shown as coming is over, so that there are others. An event of it is usually there first.
func (w *liveScreen) passed(now time.Time) bool {
	return slices.ContainsFunc(w.shown.coming, func(o api.Occurrence) bool {
		return now.Sub(o.Actual.Time) > time.Second && now.Sub(o.Actual.Time) < 10*time.Second
	})
}

// maxComing is how many instants that come are shown.
const maxComing = 6

// frame is what is shown now, in lines from the top: what concerns its reader most comes first, and what was last fills the rest.
func (w *liveScreen) frame(now time.Time, columns, lines int) []string {
	out := w.head(now, columns)

	var running, waiting, queued, coming [][]string
	for _, r := range w.shown.open {
		row := []string{outcomeMark(r), r.ID, jobName(r), when(r.QueuedAt, now)}
		switch r.State {
		case domain.StateRunning:
			running = append(running, []string{api.MarkOf(r.State, "").Shape, r.ID, jobName(r), text.Span(now.Sub(r.StartedAt.Time).Round(time.Second)), w.does(r)})
		case domain.StateWaiting:
			if !asksOwner(w.shown.inbox, r) {
				waiting = append(waiting, row)
			}
		default:
			queued = append(queued, row)
		}
	}
	for _, o := range w.shown.coming {
		coming = append(coming, []string{inText(o.Actual, now), comingJob(o), o.Source, comingNote(o, now.Location())})
	}

	out = append(out, w.section("RUNNING", running, "nothing runs")...)
	out = append(out, w.section("WAITS FOR YOU", askedRows(w.shown.inbox, now), "nothing")...)
	if len(waiting)+len(queued) > 0 {
		out = append(out, w.section("WAITS", append(waiting, queued...), "")...)
	}
	out = append(out, w.section("COMES", coming, "nothing by the clock")...)

	var latest [][]string
	for _, r := range w.shown.latest[:min(len(w.shown.latest), max(lines-len(out)-2, 1))] {
		latest = append(latest, []string{outcomeMark(r), r.ID, jobName(r), when(r.FinishedAt, now), shorten(runSummary(r), 160)})
	}
	return append(out, w.section("LATEST", latest, "nothing has run yet")...)
}

// head says which home is watched, how it is, and what is wrong.
func (w *liveScreen) head(now time.Time, columns int) []string {
	left, right := "rouse  "+text.OneLine(w.home), "q quits  "+clock(api.At(now), now, time.TimeOnly)
	blanks := max(columns-len([]rune(left))-len([]rune(right)), 2)
	out := []string{w.paint.Paint(terminal.Strong, left) + strings.Repeat(" ", blanks) + w.paint.Paint(terminal.Grey, right)}

	st := w.shown.status
	said := fmt.Sprintf("%d running, %d waiting, %d queued; served by process %d since %s", st.Running, st.Waiting, st.Queued, st.PID, strings.TrimSuffix(when(st.StartedAt, now), " ago"))
	switch {
	case w.gone:
		said = w.paint.Paint(terminal.Bad, "▲ the daemon has ended; this is how it was. As soon as one serves the home, this goes on")
	case st.PID == 0:
		said = "…"
	}
	out = append(out, said)

	for _, problem := range append([]string{st.Problem}, st.WatchProblems...) {
		if problem != "" {
			out = append(out, w.paint.Paint(terminal.Bad, "▲ "+text.OneLine(problem)))
		}
	}
	if len(st.ConfigProblems) > 0 {
		out = append(out, w.paint.Paint(terminal.Bad, "▲ the configuration on disk cannot be used: rouse config check"))
	}
	return out
}

// does is what a run is doing, as far as its events since this screen was opened tell.
func (w *liveScreen) does(r api.Run) string {
	if said := w.doing[r.ID]; said != "" || r.Steps == 0 {
		return said
	}
	return fmt.Sprintf("step %d", r.Steps)
}

// nextOfEach keeps the first that comes of each job.
func nextOfEach(coming []api.Occurrence) (out []api.Occurrence) {
	seen := map[string]bool{}
	for _, o := range coming {
		if of := comingJob(o); !seen[of] && len(out) < maxComing {
			seen[of] = true
			out = append(out, o)
		}
	}
	return out
}

// asksOwner says whether a run waits for one of the items that are listed anyway.
func asksOwner(inbox []api.Item, r api.Run) bool {
	return slices.ContainsFunc(inbox, func(i api.Item) bool { return i.Run == r.ID })
}

func askedRows(inbox []api.Item, now time.Time) (rows [][]string) {
	for _, i := range inbox {
		left := ""
		if !i.ExpiresAt.IsZero() {
			left = timeLeft(i.ExpiresAt.Sub(now))
		}
		rows = append(rows, []string{"?", i.ID, shorten(i.Title, 100), left, answerHint(i)})
	}
	return rows
}

// section is a heading with rows below it, or with what is said where there are none.
func (w *liveScreen) section(heading string, rows [][]string, none string) []string {
	out := []string{"", w.paint.Paint(terminal.Strong, heading)}
	if len(rows) == 0 {
		return append(out, w.paint.Paint(terminal.Grey, "  "+none))
	}

	var table bytes.Buffer
	// As wide as they are: the screen cuts lines, for one that wraps would push others off it.
	err := terminal.Fixed(&table, 0, w.paint.HasColours()).Table(terminal.Table{Rows: harmless(rows), Tone: func(column int, cell string) terminal.Tone {
		if column == 0 {
			return toneOf(cell)
		}
		return terminal.Plain
	}})
	if err != nil {
		return out // a buffer takes everything
	}
	for line := range strings.Lines(table.String()) {
		out = append(out, "  "+strings.TrimSuffix(line, "\n"))
	}
	return out
}
