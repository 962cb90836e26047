package executor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/agent/tool/file"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// bound is a bound of the run that the program exceeded.
type bound struct{ reason string }

func (b *bound) Error() string { return b.reason }

// run starts the program and returns its result.
func (p *program) run(ctx context.Context, in tool.Invocation, a Args) (tool.Envelope, error) {
	argv, err := p.Expand(a.Prompt)
	if err != nil {
		return refuse("the command line of the program cannot be written: %v", err)
	}
	for _, word := range argv {
		switch {
		case len(word) > maxArgument:
			return refuse("an argument of the program has %d bytes, and a system takes no more than %d; leave {{ .Prompt }} out of executor.argv, and the task is given as its input", len(word), maxArgument)
		case strings.ContainsRune(word, 0):
			return refuse("an argument of the program holds a NUL; leave {{ .Prompt }} out of executor.argv, and the task is given as its input")
		}
	}
	if err := prepareHome(p.Launcher.Roots.Boundary(), p.Settings); err != nil {
		return refuse("%s", err.Error())
	}

	refusal, err := p.Money.Reserve(ctx)
	if err != nil {
		return tool.Envelope{}, err
	}
	if refusal != nil {
		return p.overBudget(refusal)
	}

	before, err := file.TakeBefore(ctx, p.Launcher.Roots, in, filepath.Join(p.Before, file.BeforeName(in.Run, in.Attempt, in.Key)))
	if err != nil {
		settled := p.Money.Settle(context.WithoutCancel(ctx), Spent{})
		if ctx.Err() != nil {
			return tool.Cancelled(ctx), settled
		}
		if domain.IsFileFault(err) {
			return tool.Failure(tool.KindUnavailable, "%v", err), settled
		}
		return tool.Envelope{}, errors.Join(err, settled)
	}

	return p.start(ctx, before, p.launch(argv, a.Prompt), len(a.Prompt))
}

// overBudget returns the result of a call for which a budget has no room.
func (p *program) overBudget(refusal error) (tool.Envelope, error) {
	res := Result{Program: p.name(), Outcome: domain.OutcomeBudget, Error: refusal.Error()}
	var says interface{ Outcome() domain.Outcome }
	if errors.As(refusal, &says) {
		res.Outcome = says.Outcome()
	}
	return p.answer(res, nil, true), nil
}

// start runs the program to its end. Its work is recorded even if ctx ends.
func (p *program) start(ctx context.Context, before *file.Before, l shell.Program, sent int) (tool.Envelope, error) {
	within, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	reader := NewReader(ctx, p.Settings.JSON, p.Listener, nil)
	reader.zone, reader.limits = zoneOf(p.Settings.Env), p.Settings.Limits
	var over atomic.Pointer[bound]
	linger := newLinger(func() { stop(errLingers) })
	defer linger.stop()
	reader.check = func(r Reading) {
		linger.set(reader.final)
		if b := p.exceeded(r); b != nil && over.CompareAndSwap(nil, b) {
			stop(b)
		}
		if reader.failure != nil {
			stop(reader.failure)
		}
	}

	stdout, stderr := shell.NewOutput(maxAnswer), shell.NewOutput(maxStderr)
	stdout.Tee, l.Stdout, l.Stderr = reader, stdout, stderr
	ended, failed := p.Launcher.Run(within, l)
	linger.stop()

	writing := context.WithoutCancel(ctx)
	reader.Close()
	if failed != nil {
		e, host := shell.StartFailure(ctx, failed)
		return e, errors.Join(host, before.Discard(), p.Money.Settle(writing, Spent{}))
	}

	settled, err := before.Settle(writing, p.Log, p.Launcher.Roots.Boundary(), p.Launcher.Roots)
	out, words := stdout.Text(p.Redact), stderr.Text(p.Redact)
	if ended.Exit != 0 && ended.KilledBy == "" {
		reader.noteLastWords(out, words)
	}
	end := ending{
		reading: reader.Reading, final: reader.final, ended: ended, over: over.Load(), asJSON: p.Settings.JSON, network: p.Settings.Network, argv0: p.name(),
		idle: p.Bounds.Idle, stdout: out, stderr: words,
	}
	if refused := p.Launcher.Refused(l, ended, end.stdout, end.stderr); refused != nil {
		if hint := refused.Hint(p.Launcher.Roots); ended.Exit != 0 {
			end.hint = "; " + hint
		} else {
			end.refused = hint
		}
	}
	res := end.conclude()
	res.FilesChanged, res.Spent = settled.Files, p.spent(end, sent)
	res.CostUSD = float64(res.Spent.CostMicroUSD) / 1e6
	if p.Ended != nil {
		p.Ended(res)
	}

	err = errors.Join(err, reader.failure, p.Money.Settle(writing, res.Spent))
	return p.answer(res, p.warnings(end, settled), false), err
}

// grace is the time that a program has to exit after its final result.
const grace = 10 * time.Second

var errLingers = errors.New("the program did not exit after its final result")

// linger calls a function if a program does not exit within the grace time after its final result.
type linger struct {
	over  func()
	timer *time.Timer // nil until a final result arrives
}

func newLinger(over func()) *linger { return &linger{over: over} }

// set starts the timer after the first final result, and stops it if the program continues to work.
func (l *linger) set(final bool) {
	switch {
	case !final:
		l.stop()
	case l.timer == nil:
		l.timer = time.AfterFunc(grace, l.over)
	}
}

func (l *linger) stop() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// exceeded returns the bound that the program has exceeded, or nil.
func (p *program) exceeded(r Reading) *bound {
	b := p.Bounds
	switch tokens := r.Usage.Input + r.Usage.Output; {
	case b.Turns > 0 && r.Turns > b.Turns:
		return &bound{fmt.Sprintf("the program was stopped after the %s of this run (bounds.steps)", text.Plural(b.Turns, "turn"))}
	case b.Calls > 0 && r.Calls > b.Calls:
		return &bound{fmt.Sprintf("the program was stopped after the %s of this run (bounds.calls)", text.Plural(b.Calls, "call"))}
	case b.Tokens > 0 && tokens > b.Tokens:
		return &bound{fmt.Sprintf("the program was stopped: it says that it used %d tokens, more than the %d of this run (bounds.tokens)", tokens, b.Tokens)}
	case b.CostMicroUSD > 0 && p.costSoFar(r) > b.CostMicroUSD:
		return &bound{fmt.Sprintf("the program was stopped: it had cost $%.4f, more than the $%.4f of this run (bounds.cost_usd)", float64(p.costSoFar(r))/1e6, float64(b.CostMicroUSD)/1e6)}
	case b.Output > 0 && r.Written > b.Output:
		return &bound{fmt.Sprintf("the program was stopped: it wrote more than the %s of this run (bounds.output)", text.Size(b.Output))}
	}
	return nil
}

// costSoFar returns the cost that the program reported, or the cost of the tokens it reported.
func (p *program) costSoFar(r Reading) int64 {
	if r.CostKnown {
		return r.CostMicroUSD
	}
	return p.price(r).Cost(r.Usage)
}

// price returns the configured price, or the known price of the model that the program reports.
func (p *program) price(r Reading) model.Price {
	if !p.Settings.Price.Free() || p.Settings.Free {
		return p.Settings.Price
	}
	known, _ := model.Lookup(r.Model)
	return known.Price
}

// typicalPrice is used if there is no price, no limit and no earlier run to estimate from.
var typicalPrice = model.Price{Input: 3, Output: 15, Cached: 3}

// bytesPerToken is a rough average over models and languages.
const bytesPerToken = 4

// spent returns the usage of the program. The cost is an estimate unless the program reported it.
// sent is the size of its task in bytes.
func (p *program) spent(e ending, sent int) Spent {
	r := e.reading
	out := Spent{Usage: r.Usage.Clamped(), CostMicroUSD: p.costSoFar(r)}
	asked := !r.Unavailable || r.Calls > 0 || r.Written > 0 || r.Usage.Input+r.Usage.Output > 0
	switch {
	case r.CostKnown, p.Settings.Free, !asked, out.CostMicroUSD > 0 && r.Done:
		return out
	case out.CostMicroUSD > 0:
		out.Why = "the program was ended before it reported its cost"
	case !p.Settings.Network: // it cannot reach a model
		return out
	default:
		out.CostMicroUSD, out.Why = p.estimate(r, sent)
	}
	out.EstimatedTokens, out.EstimatedMicroUSD = out.Usage.Input+out.Usage.Output, out.CostMicroUSD
	return out
}

// estimate returns the estimated cost of a program and the basis of the estimate.
func (p *program) estimate(r Reading, sent int) (micro int64, why string) {
	missing := "the program did not report its cost, so it is estimated by "
	if r.CostWrong != "" {
		missing = "the program reported an impossible cost, so it is estimated by "
	}
	seen := model.Usage{Input: int64(sent) / bytesPerToken, Output: r.Written / bytesPerToken}
	price := p.price(r)
	switch {
	case !price.Free():
		return price.Cost(seen), missing + "its price and the size of its task and its answer"
	case p.UsualMicroUSD > 0:
		return p.UsualMicroUSD, missing + "the median of the job's earlier runs"
	case p.Bounds.CostMicroUSD > 0:
		return p.Bounds.CostMicroUSD, missing + "the whole limit of the run (bounds.cost_usd)"
	}
	return typicalPrice.Cost(seen), missing + "a typical price and the size of its task and its answer"
}

// warnings returns the warnings about a program for its result.
func (p *program) warnings(e ending, s file.Settled) (out []string) {
	if n := s.Files - s.Kept; n > 0 {
		out = append(out, fmt.Sprintf("%d of %s that the program changed cannot be undone: %s", n, text.Plural(s.Files, "file"), s.Why))
	}
	if n := e.reading.Garbled; n > 0 {
		out = append(out, fmt.Sprintf("%s of what the program printed could not be read as JSON", text.Plural(n, "line")))
	}
	if said := e.reading.CostWrong; said != "" {
		out = append(out, fmt.Sprintf("the program reported a cost of %s USD, which is impossible and was ignored", said))
	}
	if e.reading.UsageWrong {
		out = append(out, "the program reported an impossible number of tokens, which was ignored")
	}
	if e.final && e.ended.KilledBy != "" {
		out = append(out, "the program did not exit after its final result, and was ended")
	}
	if n := e.reading.Turns; n > maxTurns {
		out = append(out, fmt.Sprintf("the program took %d turns, of which the first %d are on record", n, maxTurns))
	}
	if beside := e.ended.Beside(p.Launcher.Roots.Workdir()); beside != "" && e.refused == "" {
		out = append(out, beside)
	} else if e.refused != "" {
		out = append(out, e.refused)
	}
	return append(out, shell.LeftoverWarnings(p.Launcher.Roots.Workdir(), e.ended)...)
}

// answer returns the envelope of a result. never reports whether the program was not started.
func (p *program) answer(res Result, warnings []string, never bool) tool.Envelope {
	done := tool.Success(res, warnings...)
	if res.Outcome.Done() || res.Question != "" {
		return done
	}

	kind := tool.KindExecutionError
	switch {
	case never:
		kind = tool.KindUnavailable
	case res.Outcome == domain.OutcomeTimeout:
		kind = tool.KindTimeout
	}
	e := tool.Failure(kind, "%s", res.Error)
	e.Result, e.Warnings = done.Result, done.Warnings
	return e
}

// name returns the name of the program.
func (p *program) name() string { return filepath.Base(p.Settings.Argv[0]) }
