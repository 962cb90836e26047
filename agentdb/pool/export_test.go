package pool

// OpenFiles returns the number of open files of a pool.
func OpenFiles(p *Pool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.entries)
}
