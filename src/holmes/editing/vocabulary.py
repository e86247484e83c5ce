"""Default chapter titles: short captions of everyday scenes."""

CAPTIONS = tuple(
    line.strip()
    for line in """
    a man is talking to the camera
    a woman is talking to the camera
    two people are talking
    a news reporter is speaking
    people are sitting around a table
    a person is giving a speech on a stage
    people are in a meeting
    a teacher is explaining something to students
    a person is cooking in a kitchen
    a person is cutting vegetables
    a person is mixing ingredients in a bowl
    food is frying in a pan
    a plate of food on a table
    people are eating at a restaurant
    a person is baking a cake
    a person is pouring a drink
    a band is playing music on a stage
    a person is singing
    a man is playing the guitar
    a person is playing the piano
    a person is playing the drums
    people are dancing
    a crowd of people at a concert
    people are at a party
    a wedding with a bride and groom
    children are blowing out candles on a cake
    children are playing outside
    a baby is lying on a bed
    a baby is crawling
    a little girl is playing with toys
    a boy is riding a bicycle
    a dog is running
    a dog is playing with a ball
    a dog is lying on the floor
    a cat is playing
    a cat is sleeping
    a horse in a field
    a person is riding a horse
    birds on a tree
    fish are swimming under water
    animals in a zoo
    cows in a meadow
    an elephant is walking
    a monkey
    a lion or a tiger
    waves at the beach
    people are swimming in a pool
    a person is surfing on a wave
    a boat on the water
    a ship at sea
    a person is fishing
    a person is diving under water
    a waterfall in a forest
    a river in the mountains
    a lake with mountains
    snow on a mountain
    people are skiing
    a person is snowboarding
    a person is climbing a rock
    people are hiking in the mountains
    a forest with trees
    flowers in a garden
    a person is working in the garden
    a sunset in the sky
    clouds in the sky
    rain is falling
    a fire is burning
    fireworks at night
    a city at night
    a street with cars
    people are walking on a street
    a car is driving on a road
    a man is driving a car
    the inside of a car
    a race with cars
    a motorcycle on a road
    people are riding bicycles
    a train at a station
    a bus on a street
    an airplane is flying
    an airport with airplanes
    a helicopter in the air
    a view of a city from above
    a tall building
    an old building or a church
    a museum with paintings
    the inside of a house
    a bedroom with a bed
    a living room with a sofa
    a bathroom
    an office with computers
    a person is using a computer
    a person is using a phone
    a computer screen with text
    a chart on a screen
    a video game is being played
    a cartoon character
    an animated scene
    text on a black background
    a logo on a screen
    a person is painting a picture
    a person is drawing on paper
    a person is writing on a board
    a person is reading a book
    a person is folding paper
    a person is sewing or knitting
    a person is repairing a machine
    a person is working with wood
    a person is building something with tools
    a factory with machines
    a tractor on a field
    a market with fruit and vegetables
    people are shopping in a store
    a woman is putting on makeup
    a person is doing someone's hair
    models are walking on a runway
    a doctor and a patient
    a scientist in a laboratory
    people are playing soccer
    people are playing basketball
    people are playing baseball
    people are playing tennis
    people are playing volleyball
    people are playing american football
    people are playing hockey on ice
    people are playing golf
    two men are wrestling or boxing
    a gymnast is performing
    people are running a race
    a person is exercising in a gym
    a person is doing yoga
    a person is skateboarding
    a person is jumping
    a stadium full of people
    people are marching in a parade
    soldiers with weapons
    a police officer
    a person is throwing a ball
    a person is playing chess or cards
    a group of people is laughing
    a family at home
    people are camping with a tent
    a christmas tree with lights
    """.splitlines()
    if line.strip()
)
