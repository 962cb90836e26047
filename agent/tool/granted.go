package tool

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
