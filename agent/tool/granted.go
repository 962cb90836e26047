package tool

import "context"

// Places are the folders and files that a run may reach, with links resolved, for a program that
// is confined to them: what it may read, and what it may change as well.
func (r *Roots) Places() (read, write []string) {
	for _, g := range r.roots {
		if g.Write {
			write = append(write, g.Path)
		} else {
			read = append(read, g.Path)
		}
	}
	return read, write
}

// Labels are those of all that lies in the places of the run: a program can read any of it.
func (r *Roots) Labels(ctx context.Context) (Taint, error) {
	labels, err := r.Memory(ctx)
	for _, g := range r.roots {
		if g.Private {
			labels |= Private
		}
		if g.Untrusted || r.dropped(g.Path) {
			labels |= Untrusted
		}
	}
	return labels, err
}
