module example

go 1.21
