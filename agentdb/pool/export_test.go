package pool

// OpenFiles counts the files that a pool has open.
func OpenFiles(p *Pool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.entries)
}
