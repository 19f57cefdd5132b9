module example.org/tree

go 1.26
