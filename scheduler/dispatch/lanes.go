package dispatch

import "context"

// lane is what a run occupies while an attempt of it is on.
type lane struct {
	line   line
	cancel context.CancelCauseFunc // nil until the attempt has begun
}

// free is how many lanes the daemon has left.
func (d *Dispatcher) free() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.o.Runs - len(d.running)
}

// take occupies the lanes that a run needs, if all are free.
func (d *Dispatcher) take(id int64, k line, p Policy) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.running) >= d.o.Runs || d.agents[k.agent] >= d.o.RunsPerAgent || d.running[id] != nil {
		return false
	}
	if k.job != "" && p.Concurrency >= 0 && d.jobs[k.job] >= max(p.Concurrency, 1) {
		return false
	}
	d.running[id] = &lane{line: k}
	d.agents[k.agent]++
	d.jobs[k.job]++
	return true
}

// giveBack frees the lanes of runs.
func (d *Dispatcher) giveBack(ids []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		k := d.running[id].line
		delete(d.running, id)
		leave(d.agents, k.agent)
		leave(d.jobs, k.job)
	}
}

// leave counts down; names that nobody uses are not kept.
func leave(count map[string]int, name string) {
	if count[name]--; count[name] == 0 {
		delete(count, name)
	}
}
