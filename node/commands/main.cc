#include "node/commands/app.h"

int main(int argc, char** argv) { return larder::node::Main(argc, argv); }
