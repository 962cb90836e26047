package checkout

// SetStep sets what is called between the steps of everything that must survive a crash.
func SetStep(f func()) { step = f }
