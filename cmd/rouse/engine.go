package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"rouse/agentdb/placement"
	"rouse/agentdb/pool"
	"rouse/cmd/internal/api"
	"rouse/cmd/internal/cluster"
	"rouse/cmd/internal/config"
	"rouse/cmd/internal/homedir"
	"rouse/internal/ledger"
	"rouse/internal/ledger/integrity"
	"rouse/internal/ledger/maint"
	"rouse/internal/text"
)

func newEngine(env *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "engine [status|migrate|take]",
		Short: "Says where the ledger is and which nodes share it, and moves it",
		RunE: func(*cobra.Command, []string) error {
			return usagef("say rouse engine with one of: status, migrate, take")
		},
	}
	status := withJSON(&cobra.Command{
		Use:   "status",
		Short: "Says where the ledger is, and which nodes share it; exits 1 when something keeps them from being one",
		RunE: env.with(toRead, func(s *session, _ []string) error {
			var e api.Engine
			err := s.show("/v1/engine", nil, &e, func() error { return printEngine(s.out, s.home, e) })
			return failIf(len(e.Problems) > 0, err)
		}),
	})
	cmd.AddCommand(status, newEngineMigrate(env), newEngineTake())
	return cmd
}

func printEngine(out io.Writer, home string, e api.Engine) error {
	if e.Address == "" {
		return sayf(out, "the ledger is a file of the home %s, which one daemon has to itself; several share one with engine.postgres\n", home)
	}

	fmt.Fprintf(out, "the ledger is in PostgreSQL, %s; this home is of the node %s\n", text.OneLine(e.Address), e.Node)
	now := time.Now()
	err := list(out, e.Nodes, "", "NODE HOST PID VERSION SINCE RUNS STATE NOTES", func(n api.Node) []string {
		state, runs := "alive", fmt.Sprintf("%d of %d", n.Runs, n.Lanes)
		if !n.Alive {
			state, runs = fmt.Sprintf("gone since %s: %s", when(n.GoneAt, now), n.Why), ""
		}
		return []string{n.Name, n.Host, fmt.Sprint(n.PID), n.Version, when(n.StartedAt, now), runs, state, n.Marks()}
	})
	if err == nil && len(e.Queues) > 0 {
		fmt.Fprintln(out)
		err = list(out, e.Queues, "", "QUEUE STATE JOBS", func(q api.EngineQueue) []string { return []string{q.Name, q.State, fmt.Sprint(q.Jobs)} })
	}
	if err == nil && len(e.Agents) > 0 {
		fmt.Fprintln(out)
		err = list(out, slices.Sorted(maps.Keys(e.Agents)), "", "AGENT NODE NOTES", func(name string) []string {
			note := ""
			if slices.Contains(e.Stay, name) {
				note = "stays: it has files there, or its database was not shipped yet"
			}
			return []string{name, e.Agents[name], note}
		})
	}
	warn(out, e.Problems...)
	return err
}

type engineMigrateOptions struct {
	to, from, node string
	blobs          string
}

// engineMigrated is the output of the command with --json.
type engineMigrated struct {
	Tables []maint.CopiedTable `json:"tables"`
	Agents []string            `json:"agents,omitempty"` // agents whose files are on the node
	Node   string              `json:"node,omitempty"`
	Kept   string              `json:"kept,omitempty"` // path of the old ledger
	Left   map[string]string   `json:"left,omitempty"` // nodes that still have files of agents, by agent
}

func newEngineMigrate(env *cli) *cobra.Command {
	var o engineMigrateOptions
	cmd := &cobra.Command{
		Use:   "migrate --to URL | --from URL",
		Short: "Takes the ledger of the home to PostgreSQL, or back",
		Long: `Takes the ledger of the home, with its large values, to an empty database of PostgreSQL, or
from there to the home. All daemons on both sides have to be stopped. What is copied is counted,
and held to rouse audit, before the ledger of the home makes way: it is kept in HOME/replaced.
A copy that is cut off is used by nobody; the same command goes on with it.

With --blobs, its values over 64 KiB are in a bucket, or in a folder that all nodes share.
Agents' databases and files stay where they are: on PostgreSQL, they belong to this node.`,
		Example: `  rouse engine migrate --to postgres://rouse@db.example/rouse
  rouse engine migrate --to postgres://rouse@db.example/rouse --blobs s3://bucket/rouse?region=eu-central-1
  rouse engine migrate --from postgres://rouse@db.example/rouse`,
	}

	cmd.Flags().StringVar(&o.to, "to", "", "the database to take the ledger to")
	cmd.Flags().StringVar(&o.from, "from", "", "the database to take the ledger from")
	cmd.Flags().StringVar(&o.node, "node", "", "with --to: the name that this machine's daemon has there (default: the hostname)")
	cmd.Flags().StringVar(&o.blobs, "blobs", "", "`URL` of the place beside the database where its large values are (default: engine.blobs of the configuration, else in the database)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if (o.to == "") == (o.from == "") {
			return usagef("say either --to URL or --from URL")
		}
		return engineMigrate(cmd, env, o)
	}
	return withJSON(cmd)
}

func engineMigrate(cmd *cobra.Command, env *cli, o engineMigrateOptions) (err error) {
	ctx := cmd.Context()
	home, err := env.homeDir()
	if err != nil {
		return err
	}
	release, err := homedir.HoldAny(ctx, home, env.printWaiting)
	if err != nil {
		return err
	}
	defer release()

	file := homedir.LedgerOptions(home)
	file.Copying = o.from != ""
	if o.to != "" {
		if err := errors.Join(homedir.SharedLedger(home), homedir.FindLedger(ctx, home)); err != nil {
			return err
		}
	}
	here, err := ledger.Open(ctx, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, here.Close()) }()

	there, closeThere, err := openThere(ctx, env, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeThere()) }()

	from, to := here, there
	if o.from != "" {
		from, to = there, here
	}
	done := engineMigrated{}
	if done.Tables, err = copyLedger(cmd, from, to); err != nil {
		return err
	}

	if o.to != "" {
		if done.Node, done.Agents, err = takeAgents(ctx, to, home, o.node); err != nil {
			return err
		}
		if done.Kept, err = retireLedger(ctx, here, home); err != nil {
			return err
		}
	} else {
		if done.Left, err = bringAgents(cmd, there, here, home); err != nil {
			return err
		}
		if err := homedir.ForgetShared(home); err != nil {
			return err
		}
	}
	return sayMigrated(cmd, o, done)
}

// openThere opens the ledger in PostgreSQL with the store for its large values.
func openThere(ctx context.Context, env *cli, o engineMigrateOptions) (*ledger.Ledger, func() error, error) {
	engine := config.Engine{Blobs: o.blobs}
	if cfg, err := env.load(); err == nil && (o.blobs == "" || o.blobs == cfg.Engine.Blobs) {
		engine = cfg.Engine
	}
	values, err := cluster.OpenValues(engine)
	if err != nil {
		return nil, nil, usagef("--blobs: %v", err)
	}

	l, closeLedger, err := cluster.OpenLedger(ctx, o.to+o.from, values, o.to != "")
	if err != nil {
		return nil, nil, err
	}
	if err := cluster.ClaimValues(ctx, l, engine, false); err != nil {
		return nil, nil, errors.Join(err, closeLedger())
	}
	return l, closeLedger, nil
}

// copyLedger copies a ledger, or completes an interrupted copy, and audits the copy.
func copyLedger(cmd *cobra.Command, from, to *ledger.Ledger) ([]maint.CopiedTable, error) {
	ctx := cmd.Context()
	table, rows := "", int64(0)
	show, clear := progressLine(cmd.ErrOrStderr(), func(done, of int64) string { return fmt.Sprintf("%s: %d of %d rows", table, done, of) })
	copied, err := maint.Copy(ctx, from.Maint, to.Maint, maint.CopyOptions{Progress: func(name string, done, of int64) {
		table, rows = name, rows+1
		show(done, of)
	}})
	clear()
	if err != nil {
		return nil, err
	}

	broken := 0
	err = integrity.Audit(ctx, to.DB, to.Blobs, integrity.Options{Begin: func(integrity.Check) {}, Found: func(v integrity.Violation) error {
		if broken++; broken <= 10 {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", v.Check, text.OneLine(v.Text))
		}
		return nil
	}})
	if err == nil && broken > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: the copy breaks %d promises, as the ledger before does if rouse audit says the same there\n", broken)
	}
	return copied, err
}

// takeAgents assigns to this node all agents whose databases are in the home.
func takeAgents(ctx context.Context, l *ledger.Ledger, home, node string) (string, []string, error) {
	var err error
	if node == "" {
		if node, err = os.Hostname(); err != nil {
			return "", nil, fmt.Errorf("the name of this machine cannot be read: %w; say it with --node", err)
		}
	}

	found, err := filepath.Glob(filepath.Join(home, "agents", "*", "db.sqlite"))
	if err != nil {
		return "", nil, err
	}
	agents := []string{}
	for _, path := range found {
		agents = append(agents, filepath.Base(filepath.Dir(path)))
	}
	return node, agents, l.Nodes.TakeAgents(ctx, node, true, agents...)
}

// bringAgents fetches the databases of agents from other nodes. left maps each agent with files on
// another node to that node.
func bringAgents(cmd *cobra.Command, from, to *ledger.Ledger, home string) (left map[string]string, err error) {
	pool, err := pool.New(pool.Options{Dir: filepath.Join(home, "agents"), Ledger: to})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	keeper := placement.New(cmd.Context(), pool, homedir.PlacementOptions(home, homedir.NodeOf(home), from, nil))
	defer keeper.Close()
	return keeper.Bring(cmd.Context(), func(agent string) {
		fmt.Fprintf(cmd.ErrOrStderr(), "brings the database of %s\n", text.OneLine(agent))
	})
}

// retireLedger replaces the copied ledger with an empty one and keeps the old file.
func retireLedger(ctx context.Context, l *ledger.Ledger, home string) (string, error) {
	if err := l.Close(); err != nil {
		return "", err
	}
	r, err := maint.Reset(ctx, homedir.LedgerOptions(home))
	return r.Kept, err
}

func sayMigrated(cmd *cobra.Command, o engineMigrateOptions, done engineMigrated) error {
	if wantsJSON(cmd) {
		return printJSON(cmd.OutOrStdout(), done)
	}

	rows := int64(0)
	for _, t := range done.Tables {
		rows += t.Rows
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s in %s were copied, counted and audited\n", text.Plural(int(rows), "row"), text.Plural(len(done.Tables), "table"))
	if o.from != "" {
		for _, agent := range slices.Sorted(maps.Keys(done.Left)) {
			fmt.Fprintf(out, "the files of %s are at the node %s: copy HOME/agents/%[1]s and HOME/storage/%[1]s from there, whichever there is (db.sqlite only where there is none here)\n", text.OneLine(agent), text.OneLine(done.Left[agent]))
		}
		return sayf(out, "the ledger is in the home again: take engine: out of the configuration before you start rouse; the database was left as it is\n")
	}

	if done.Kept != "" {
		fmt.Fprintf(out, "the ledger of before is kept in %s\n", text.OneLine(done.Kept))
	}
	if len(done.Agents) > 0 {
		fmt.Fprintf(out, "at the node %s are the databases and files of: %s\n", done.Node, text.List(done.Agents, 20))
	}
	blobs := ""
	if o.blobs != "" {
		blobs = ", blobs: " + strconv.Quote(o.blobs)
	}
	return sayf(out, "now put this into the configuration, and start rouse:\n  engine: {postgres: URL%s}\n  node: %s\n", blobs, done.Node)
}

func newEngineTake() *cobra.Command {
	var url, node string
	var local bool
	cmd := &cobra.Command{
		Use:   "take --postgres URL --node NODE AGENT…",
		Short: "Gives the databases and files of agents to a node",
		Long: `An agent's database is at one node at a time, and comes along when another one does its runs. Its
files do not, so an agent that has files stays where they are. When these were brought to another
machine (HOME/agents/AGENT), or when their node is lost, this gives the agent to a node: with the
database as it was shipped last, or with --local as it lies in the home of that node. It is refused
while the node before is at work.`,
		Example: `  rouse engine take --postgres postgres://rouse@db.example/rouse --node north bookkeeper`,
		Args:    cobra.MinimumNArgs(1),
	}

	cmd.Flags().StringVar(&url, "postgres", "", "the database")
	cmd.Flags().StringVar(&node, "node", "", "the name of the node that gets them")
	cmd.Flags().BoolVar(&local, "local", false, "take the databases that lie in the home of that node, and forget what was shipped")

	cmd.RunE = func(cmd *cobra.Command, agents []string) (err error) {
		if url == "" || node == "" {
			return usagef("say --postgres URL and --node NODE")
		}

		l, closeLedger, err := cluster.OpenLedger(cmd.Context(), url, nil, false)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeLedger()) }()

		if err := l.Nodes.TakeAgents(cmd.Context(), node, local, agents...); err != nil {
			return err
		}
		return sayf(cmd.OutOrStdout(), "the runs of %s are done at %s\n", text.List(agents, 20), node)
	}

	return cmd
}
