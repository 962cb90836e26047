package web

import (
	"context"
	"io"
	"time"

	"rouse/agentdb"
	"rouse/agentdb/pool"
	"rouse/cmd/internal/api"
	"rouse/internal/ledger"
	"rouse/skills/install"
)

// Backend is the process that serves a home: what the API and the pages need beside the ledger. Methods return an *api.Error if the
// request was wrong. It is an interface because package daemon, which implements it, imports this package.
type Backend interface {
	Status(ctx context.Context) (api.Status, error)
	// Doctor runs the checks of rouse doctor, without the network if offline is true. If ctx forbids programs, a check that starts one
	// returns its last result.
	Doctor(ctx context.Context, offline bool) ([]api.Check, error)
	// Reload reads the configuration and applies it.
	Reload(ctx context.Context) (api.Reload, error)
	// ConfigProblem returns why the configuration on disk is not in use, or "". If load is true, it loads a newer configuration first.
	ConfigProblem(ctx context.Context, load bool) string
	// BackUp makes a backup of the whole home.
	BackUp(ctx context.Context, ask api.HomeBackupRequest, progress func(done, of int64)) (api.HomeBackup, error)
	// Engine returns the location of the ledger and the nodes that use it.
	Engine(ctx context.Context) (api.Engine, error)
	// Notify sends a text to a channel at once.
	Notify(ctx context.Context, channel, text string) (sentTo string, err error)

	Jobs(ctx context.Context) ([]api.Job, error)
	Agents(ctx context.Context) ([]api.Agent, error)
	// Next returns the next n occurrences of a job, or of every job if job is "".
	Next(ctx context.Context, job string, n int) ([]api.Occurrence, error)
	// Known returns an error that suggests the nearest name if neither the configuration nor the history has the job or agent.
	Known(job, agent string) error
	// Backfill queues the missed occurrences of a job, or only lists them if the request is a dry run.
	Backfill(ctx context.Context, job string, request api.BackfillRequest) (api.Backfill, error)
	// Budget returns the cost of models today and this month, and the limits.
	Budget(ctx context.Context) (api.Budget, error)
	// Cost estimates the cost of the coming week, for one job or for all ("").
	Cost(ctx context.Context, job string) (api.Cost, error)

	// Fire queues a run and returns its id.
	Fire(ctx context.Context, request api.RunRequest) (int64, error)
	// Undo reverts the changes of a finished run to files and to the database of its agent. It calls progress
	// with the number of changelog entries that are reverted.
	Undo(ctx context.Context, run ledger.Run, request api.UndoRequest, progress func(done, of int64)) (api.Undo, error)
	// Cancelled handles a run that was cancelled while it waited for an answer.
	Cancelled(ctx context.Context, run ledger.Run)
	// Pending returns the question or approval that a run waits for.
	Pending(ctx context.Context, run ledger.Run) (api.Pending, error)
	// Recording exports the record of a finished run as a file.
	Recording(ctx context.Context, run int64) ([]byte, error)
	// Replay repeats a finished run with the current configuration of its job, and without effects.
	Replay(ctx context.Context, run int64) (api.Replay, error)

	// Checkout returns the checkout of a run, or nil if the run has no checkout. If diff is true, it includes the changes.
	Checkout(ctx context.Context, run ledger.Run, diff bool) (*api.Checkout, error)
	// WaitingCheckouts returns the checkouts whose branches wait to be applied or discarded.
	WaitingCheckouts(ctx context.Context) ([]api.Checkout, error)
	Apply(ctx context.Context, run ledger.Run, ask api.ApplyRequest) (api.Checkout, error)
	Discard(ctx context.Context, run ledger.Run) (api.Checkout, error)

	// Database lends an agent's database until release is called.
	Database(ctx context.Context, agent string) (db *agentdb.DB, release func(), err error)
	// Databases returns the pool, which can repair a database that cannot be opened. It returns an error for an
	// unknown agent.
	Databases(agent string) (*pool.Pool, error)
	// Kept returns the database of an agent and the folders that it can write.
	Kept(agent string) ([]ledger.Place, error)
	// PlaceOf returns the path with the identity of its file, so that a renamed file keeps its labels.
	PlaceOf(path string) ledger.Place
	// Idle returns an error if a run of the agent is unfinished. If force is true, it ignores runs that wait for an answer.
	Idle(ctx context.Context, agent string, force bool) error
	// Reconsider checks all queued runs again, because the obstacle of a blocked run may be gone.
	Reconsider()

	Pause(ctx context.Context, request api.PauseRequest) (api.Paused, error)
	Resume(ctx context.Context, scope, name string) (api.Resumed, error)

	// Wakes returns the planned wake and the limits of each agent with self-scheduling, or of one agent.
	Wakes(ctx context.Context, agent string) ([]api.AgentWake, error)
	// SetWake plans the next wake of an agent for its owner. Fields that the request omits keep their values.
	SetWake(ctx context.Context, request api.WakeRequest) (api.PlannedWake, error)
	CancelWake(ctx context.Context, agent string) (api.CancelledWake, error)

	// Why explains the last n occurrences of a job around a time, or until now if at is "".
	Why(ctx context.Context, job, at string, n int) (api.Why, error)
	// WhyFile explains how the watches of a folder treat a file, or each file if path is the folder.
	WhyFile(ctx context.Context, path string) ([]api.WhyFile, error)

	// Skills returns the loaded skills, and the reason for each skill that is not loaded.
	Skills(ctx context.Context) (install.Inventory, error)
	// Skill returns the permissions, instructions and documentation of a skill.
	Skill(ctx context.Context, name string) (install.Detail, error)

	SignIns(ctx context.Context) ([]api.SignIn, error)
	RemoveSignIn(ctx context.Context, name string) error
	// SignInLink returns the sign-in link of an inbox item, or "" if the item is not a sign-in.
	SignInLink(ctx context.Context, i ledger.Item) (string, error)
	// AnswerSignIn completes a sign-in with the pasted answer. It returns false if the item is not a sign-in.
	AnswerSignIn(ctx context.Context, i ledger.Item, pasted string) (taken bool, err error)

	MCPServers(ctx context.Context) ([]api.MCPServer, error)
	LookAtMCPServer(ctx context.Context, name string, how api.MCPLook) (api.MCPServer, error)
	ApproveMCPTools(ctx context.Context, name string, in api.MCPApproval) (api.MCPApproved, error)
	RevokeMCPTools(ctx context.Context, name string, in api.MCPApproval) (api.MCPApproved, error)
	SignInAtMCPServer(ctx context.Context, name string, in api.MCPReply) (api.MCPSignIn, error)

	Webhooks(ctx context.Context) ([]api.Webhook, error)

	Access(ctx context.Context) (api.Access, error)
	// Login returns a link that logs a browser in once and opens path.
	Login(ctx context.Context, path string) (api.Login, error)
	// EndSession logs a browser out.
	EndSession(ctx context.Context, id string) error
	// RotateToken replaces the token and ends all sessions.
	RotateToken(ctx context.Context) error

	// Zone returns the time zone of the configuration.
	Zone() *time.Location
	AgentNames() []string
	Channels() []string
	// Definition returns the YAML of a job without secrets.
	Definition(job string) (api.Definition, error)
	// Simulate returns the occurrences of a job in the coming time, and the end of the simulated time. It stops early if there are
	// very many occurrences.
	Simulate(ctx context.Context, job string, length time.Duration) (out []api.Occurrence, until time.Time, err error)
	// OpenFile opens a regular file. It follows no link where agents or strangers can make links.
	OpenFile(path string) (io.ReadCloser, error)
}
