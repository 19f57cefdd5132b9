package parts

import "context"

// Each returns a function that calls those of obs, which of returns; nil if none has it.
func Each[O, E any](obs []*O, of func(*O) func(context.Context, E)) func(context.Context, E) {
	var fs []func(context.Context, E)
	for _, o := range obs {
		if o != nil && of(o) != nil {
			fs = append(fs, of(o))
		}
	}
	if len(fs) == 0 {
		return nil
	}
	return func(ctx context.Context, e E) {
		for _, f := range fs {
			f(ctx, e)
		}
	}
}
